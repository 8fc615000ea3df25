import type { StoredDocument } from "../storage/storage.ts";
import { isNewer } from "./cursor.ts";
import type { Item } from "./plane_port.ts";
import { SortedItems, sortInSlices, type WorkSlices } from "./sorted_items.ts";
import type { Update } from "./source.ts";

/** A document as stored and as shown. The shown one is older while the newest is still being fetched. */
export interface Entry {
  readonly stored: StoredDocument;
  readonly item?: Item;
  /** The hash of the shown version. */
  readonly shownHash?: string;
}

/** A prepared replacement of all documents. */
export interface Replacement {
  /** Keys of documents that differ. */
  readonly changed: readonly string[];
  take(): void;
}

/** Deletions to remember. */
const MAX_TOMBSTONES = 10_000;

/** The documents of a topic in memory. */
export class Documents {
  #entries = new Map<string, Entry>();
  /** The version at which each was deleted; the oldest first. */
  #tombstones = new Map<string, string>();
  readonly #sorted = new SortedItems();

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** Sorted by key; the same array until something changed. */
  items(): readonly Item[] {
    return this.#sorted.all();
  }

  /** Documents whose newest version is not fetched yet. */
  *unfetched(): Iterable<Entry> {
    for (const entry of this.#entries.values()) if (isUnfetched(entry)) yield entry;
  }

  /** All documents and tombstones, as stored. */
  *stored(): Iterable<StoredDocument> {
    for (const { stored } of this.#entries.values()) yield stored;
    for (const [key, version] of this.#tombstones) yield { key, version, hash: "", deleted: true };
  }

  /** Applies an update. Returns the document to store, or undefined when the update is not newer. */
  update({
    doc_key: key = "",
    doc_version: version = "0",
    op,
    payload,
    payload_hash: hash = "",
    fetch_required,
  }: Update): StoredDocument | undefined {
    const known = this.#entries.get(key)?.stored.version ?? this.#tombstones.get(key);
    if (known !== undefined && !isNewer(version, known)) return undefined;
    const document: StoredDocument =
      op === "delete"
        ? { key, version, hash: "", deleted: true }
        : { key, version, hash, ...(!fetch_required && { payload }) };
    return this.#put(document).stored;
  }

  /** Applies a fetched document. Returns it, or undefined when it is not needed any more. */
  resolve(document: StoredDocument): StoredDocument | undefined {
    const entry = this.#entries.get(document.key);
    if (!entry || !isUnfetched(entry) || isNewer(entry.stored.version, document.version)) return undefined;
    return this.#put(document).stored;
  }

  /**
   * Prepares to replace all documents, in slices of bounded length. The caller changes nothing until then, and nothing is visible
   * until `take` replaces everything in one step. Unchanged documents stay the same objects.
   */
  async replacement(documents: Iterable<StoredDocument>, slices: WorkSlices): Promise<Replacement> {
    const before = this.#entries;
    const entries = new Map<string, Entry>();
    const tombstones = new Map<string, string>();
    const items: Item[] = [];
    const changed: string[] = [];
    for (const document of documents) {
      if (slices.isOver()) await slices.yieldControl();
      const { key } = document;
      if (document.deleted) {
        tombstones.set(key, document.version);
        continue;
      }
      const old = before.get(key);
      const same = old !== undefined && isSame(old.stored, document) && !isUnfetched(old);
      const entry = same ? old : entryOf(document, old);
      if (!same) changed.push(key);
      entries.set(key, entry);
      if (entry.item) items.push(entry.item);
    }
    for (const key of before.keys()) {
      if (slices.isOver()) await slices.yieldControl();
      if (!entries.has(key)) changed.push(key);
    }
    const sorted = await sortInSlices(items, slices);
    return {
      changed,
      take: () => {
        this.#entries = entries;
        this.#tombstones = tombstones;
        if (changed.length > 0) this.#sorted.replace(sorted);
      },
    };
  }

  /** Forgets the oldest deletions beyond a bound; returns their keys. */
  forget(): readonly string[] {
    const forgotten: string[] = [];
    for (const key of this.#tombstones.keys()) {
      if (this.#tombstones.size <= MAX_TOMBSTONES) break;
      this.#tombstones.delete(key);
      forgotten.push(key);
    }
    return forgotten;
  }

  #put(document: StoredDocument): Entry {
    const { key, version } = document;
    const old = this.#entries.get(key);
    this.#tombstones.delete(key);
    if (document.deleted) {
      this.#entries.delete(key);
      this.#tombstones.set(key, version);
      this.#sorted.set(key, undefined);
      return { stored: document };
    }
    const entry = entryOf(document, old);
    this.#entries.set(key, entry);
    if (entry.item !== old?.item) this.#sorted.set(key, entry.item);
    return entry;
  }
}

function entryOf(document: StoredDocument, old: Entry | undefined): Entry {
  const stored = reusePayload(document, old);
  if (stored.payload === undefined) return { ...old, stored };
  return { stored, item: itemOf(stored), shownHash: stored.hash };
}

/** Whether the newest version of a document must still be fetched. */
export function isUnfetched({ stored }: Entry): boolean {
  return stored.payload === undefined;
}

/** Documents without a hash cannot be compared. */
function isSame(a: StoredDocument, b: StoredDocument): boolean {
  return a.hash !== "" && a.hash === b.hash && a.version === b.version;
}

/** Skips the fetch when the hash shows that the payload is already here. */
function reusePayload(document: StoredDocument, old: Entry | undefined): StoredDocument {
  const known =
    document.payload === undefined && old?.item && document.hash !== "" && old.shownHash === document.hash;
  return known ? { ...document, payload: old.item!.data } : document;
}

function itemOf({ key, version, payload: data, updatedAt }: StoredDocument): Item {
  return updatedAt === undefined ? { key, version, data } : { key, version, data, updatedAt };
}
