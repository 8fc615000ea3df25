import { isAt, OutdatedChange, oneAtATime } from "./driver_support.ts";
import type { Cursor, Storage, StoredDocument } from "./storage.ts";

interface Topic {
  readonly documents: Map<string, StoredDocument>;
  readonly cursor: Cursor;
}

/** Stores documents in memory. The default. */
export function memory(): Storage {
  const run = oneAtATime("The memory");
  const scopes = new Map<string, Map<string, Topic>>();
  return {
    load: (scope, topic) =>
      run(async () => {
        const found = scopes.get(scope)?.get(topic);
        return found && { documents: [...found.documents.values()], cursor: found.cursor };
      }),

    commit: (scope, topic, { after, put, remove, cursor }) =>
      run(async () => {
        const topics = scopes.get(scope) ?? new Map<string, Topic>();
        const stored = topics.get(topic);
        if (after && !isAt(stored?.cursor, after)) throw new OutdatedChange();
        // Read first, so that a document that throws leaves everything unchanged.
        const changed = [...put];
        const documents = (after && stored?.documents) ?? new Map<string, StoredDocument>();
        for (const key of remove) documents.delete(key);
        for (const document of changed) documents.set(document.key, document);
        topics.set(topic, { documents, cursor });
        scopes.set(scope, topics);
      }),

    clear: (scope, topic) =>
      run(async () => {
        if (scope === undefined) scopes.clear();
        else if (topic === undefined) scopes.delete(scope);
        else scopes.get(scope)?.delete(topic);
      }),

    async close() {},
  };
}
