import { canonicalJson } from "@khala/contracts";
import type { AuthorityEvent } from "../../../packages/server/src/events/stream.ts";
import { sha256 } from "../../../packages/server/src/kit/hash.ts";
import { documentId, type Model } from "../../../packages/server/src/sync/model.ts";
import type { CurrentDocument } from "../../../packages/server/src/sync/read/read_models.ts";
import { applyEvent } from "../../../packages/server/src/sync/write/projection.ts";

interface Viewer {
  readonly org: string;
  readonly subject: string;
}

/** What every viewer should hold, and could ever have held, told by the events alone. */
export class SyncOracle {
  readonly #documents = new Map<string, CurrentDocument>();
  /** Everybody who could see a document at some time. */
  readonly #seenBy = new Map<string, { subjects: Set<string> | null }>();

  /** Folds the events of one topic's model. */
  constructor(model: Model, events: readonly AuthorityEvent[]) {
    for (const event of events) {
      const write = applyEvent(model, event, this.#documents);
      if (!write) continue;
      const { docKey, org, audience } = write;
      const id = documentId({ org, docKey });
      const seen = this.#seenBy.get(id) ?? { subjects: new Set() };
      if (audience === null) this.#seenBy.set(id, { subjects: null });
      else {
        for (const subject of audience) seen.subjects?.add(subject);
        this.#seenBy.set(id, seen);
      }
    }
  }

  /** The documents that a viewer sees now: their hashes by key. */
  seen(viewer: Viewer): Map<string, string> {
    const seen = new Map<string, string>();
    const prefix = documentId({ org: viewer.org, docKey: "" });
    for (const [id, { document, audience }] of this.#documents) {
      const own = id.startsWith(prefix) && (audience?.includes(viewer.subject) ?? true);
      if (document && own) seen.set(id.slice(prefix.length), sha256(canonicalJson(document)));
    }
    return seen;
  }

  /** Whether a viewer could ever see a document, and so may be told that it is gone. */
  everSeen(viewer: Viewer, docKey: string): boolean {
    const seen = this.#seenBy.get(documentId({ org: viewer.org, docKey }));
    return seen !== undefined && (seen.subjects?.has(viewer.subject) ?? true);
  }
}
