import type { StoredDocument } from "@khala/client";

/** A change of a document, as the socket tells it in JSON. */
export interface Update {
  readonly topic: string;
  readonly doc_key: string;
  readonly doc_version: string;
  readonly op: "upsert" | "delete";
  /** The document itself. */
  readonly payload?: unknown;
  readonly payload_hash?: string;
  readonly watermark?: string;
  /** The payload is over the size limit: fetch the document. */
  readonly fetch_required?: boolean;
}

const MOST = 100_000;

/** The newest version of each document that was told of, so that nothing is told twice or backwards. */
export class Known {
  readonly #versions = new Map<string, { version: bigint; deleted: boolean }>();
  readonly #tell: (update: Update) => void;

  constructor(tell: (update: Update) => void) {
    this.#tell = tell;
  }

  /** Tells of an update, unless it is not newer than what is known. */
  take(update: Update): void {
    const version = BigInt(update.doc_version);
    const before = this.#versions.get(update.doc_key);
    if (before && before.version >= version) return;
    this.#versions.delete(update.doc_key);
    this.#versions.set(update.doc_key, { version, deleted: update.op === "delete" });
    if (this.#versions.size > MOST) this.#versions.delete(this.#versions.keys().next().value!);
    this.#tell(update);
  }

  /** Takes a complete list: what is newer is told, and what is no longer there is told as deleted. */
  replace(topic: string, documents: readonly StoredDocument[]): void {
    const listed = new Set(documents.map(({ key }) => key));
    for (const [doc_key, { version, deleted }] of [...this.#versions]) {
      if (deleted || listed.has(doc_key)) continue;
      this.#versions.set(doc_key, { version, deleted: true });
      this.#tell({ topic, doc_key, doc_version: String(version), op: "delete" });
    }
    for (const { key, version, payload, hash } of documents)
      this.take({ topic, doc_key: key, doc_version: version, op: "upsert", payload, payload_hash: hash });
  }
}
