import type { Cursor, Storage, StoredDocument } from "./storage.ts";

interface Topic {
  readonly documents: Map<string, StoredDocument>;
  readonly cursor: Cursor;
}

/** Stores documents in memory. The default. */
export function memory(): Storage {
  const scopes = new Map<string, Map<string, Topic>>();
  return {
    async load(scope, topic) {
      const found = scopes.get(scope)?.get(topic);
      return found && { documents: [...found.documents.values()], cursor: found.cursor };
    },

    async commit(scope, topic, { replace, put, remove, cursor }) {
      const topics = scopes.get(scope) ?? new Map<string, Topic>();
      // Read first, so that a document that throws leaves everything unchanged.
      const changed = [...put];
      const documents = (!replace && topics.get(topic)?.documents) || new Map<string, StoredDocument>();
      for (const key of remove) documents.delete(key);
      for (const document of changed) documents.set(document.key, document);
      topics.set(topic, { documents, cursor });
      scopes.set(scope, topics);
    },

    async clear(scope, topic) {
      if (scope === undefined) scopes.clear();
      else if (topic === undefined) scopes.delete(scope);
      else scopes.get(scope)?.delete(topic);
    },

    async close() {},
  };
}
