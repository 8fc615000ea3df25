import type { Artifact, Context } from "@khala/server/blackboard";
import { decodeArtifact } from "../topics/decoding.ts";
import type { LogRecord, Position } from "../topics/log_reader.ts";
import { OldestKeys } from "../topics/oldest_keys.ts";
import { byIdKey } from "../topics/records.ts";
import { versionOf } from "./artifact_summary.ts";
import { type Entry, IdTable } from "./id_table.ts";

export interface ArtifactIndexOptions {
  readonly topic: string;
  readonly bodies: BodyCache;
  /** Reads the record at a position, or the next one. */
  readonly lookup: (position: Position) => Promise<LogRecord | undefined>;
  /** Resolves when everything committed so far has been read. */
  readonly fresh: () => Promise<void>;
}

/** How often a record may move, by a newer version or by compaction, while it is looked up. */
const MAX_MOVES = 5;
/** The limit of entries written here and not read back: beyond it `get` waits for the log. */
const MAX_WRITTEN = 100_000;

/**
 * Finds artifacts by their key in the index, which is the id with the org. Knows where every artifact is, in a few bytes each, and caches the bodies that were used last;
 * others are read from the log.
 */
export class ArtifactIndex {
  readonly #options: ArtifactIndexOptions;
  readonly #log: Context["log"];
  readonly #table = new IdTable();
  /** Versions that were written here and not read back yet. */
  readonly #written = new Map<string, number>();
  readonly #oldestWritten = new OldestKeys(this.#written);
  readonly #bytesOf = new Map<string, number>();

  constructor(context: Pick<Context, "log">, options: ArtifactIndexOptions) {
    this.#log = context.log;
    this.#options = options;
  }

  get size(): number {
    return this.#table.size;
  }

  /** The bytes of the newest versions, by org. */
  get storedBytes(): ReadonlyMap<string, number> {
    return this.#bytesOf;
  }

  /**
   * Takes a record of the compacted topic, and returns its version. Keeps its body if the caller gives its
   * key: those of a rebuild would only evict each other.
   */
  onRecord(record: LogRecord, kept?: string): number | undefined {
    if (!record.key) return undefined;
    if (record.value === null) return this.#removed(record.key);
    const version = versionOf(record);
    if (version === undefined) {
      this.#log.warn(
        { topic: record.topic, partition: record.partition, offset: record.offset },
        "a record of the index cannot be read, and is skipped",
      );
      return undefined;
    }
    const known = this.#table.get(record.key);
    if (known && known.version > version) return undefined;
    const bytes = record.value.length;
    this.#table.set(record.key, { partition: record.partition, offset: record.at, version, bytes });
    this.#count(record.key, bytes - (known?.bytes ?? 0));
    if (kept === undefined && this.#written.size === 0) return version;
    const key = kept ?? record.key.toString();
    const written = this.#written.get(key) ?? 0;
    if (written > 0 && written <= version) this.#written.delete(key);
    if (kept !== undefined && written !== version) this.#options.bodies.put(key, version, record.value);
    return version;
  }

  /** Finds this process's commits at once, before they are read back. */
  wrote(artifact: Artifact, json: string): void {
    const { org_id, id, version } = artifact;
    const key = byIdKey(org_id, id);
    if ((this.version(key) ?? 0) >= version) return;
    this.#written.set(key, version);
    this.#options.bodies.put(key, version, json);
    if (this.#written.size > MAX_WRITTEN) this.#written.delete(this.#oldestWritten.next()!);
  }

  /** The newest version known here. */
  version(key: string): number | undefined {
    const written = this.#written.get(key);
    const entry = this.#table.get(key);
    if (written === undefined) return entry?.version;
    return Math.max(written, entry?.version ?? 0);
  }

  /** The newest version. Looks for an unknown key again once everything committed is read. */
  async get(key: string): Promise<Artifact | undefined> {
    if (this.version(key) === undefined) await this.#options.fresh();
    for (let moves = 0; moves < MAX_MOVES; moves++) {
      const version = this.version(key);
      if (version === undefined) return undefined;
      const body = this.#options.bodies.get(key);
      if (body && body.version >= version) return parsed(body.json);
      const entry = this.#table.get(key);
      if (entry?.version === version) {
        const found = await this.#read(key, entry);
        if (found) return found;
      }
      await this.#options.fresh();
    }
    return undefined;
  }

  async #read(key: string, { partition, offset, version }: Entry): Promise<Artifact | undefined> {
    const record = await this.#options.lookup({ topic: this.#options.topic, partition, offset });
    // Another record is there when compaction has removed this one for a newer version or a tombstone.
    if (record?.at !== offset || record.value === null) return undefined;
    const decoded = decodeArtifact(record);
    if (!decoded.ok) return undefined;
    this.#options.bodies.put(key, version, record.value);
    return decoded.value;
  }

  #count(key: Buffer, bytes: number): void {
    if (bytes === 0) return;
    const org = orgOfKey(key);
    this.#bytesOf.set(org, (this.#bytesOf.get(org) ?? 0) + bytes);
  }

  #removed(bytes: Buffer): undefined {
    this.#count(bytes, -(this.#table.get(bytes)?.bytes ?? 0));
    this.#table.delete(bytes);
    const key = bytes.toString();
    this.#written.delete(key);
    this.#options.bodies.delete(key);
  }
}

/** The org in a key of the index. */
function orgOfKey(key: Buffer): string {
  return key.toString("utf8", key.indexOf("@") + 1);
}

function parsed(json: string | Buffer): Artifact | undefined {
  const decoded = decodeArtifact({ value: typeof json === "string" ? Buffer.from(json) : json });
  return decoded.ok ? decoded.value : undefined;
}

interface Body {
  readonly version: number;
  /** Its JSON, as text or in UTF-8. */
  readonly json: string | Buffer;
}

/** The memory of an entry besides its JSON. */
const OVERHEAD_BYTES = 200;

/** The most recently used bodies of artifacts, as JSON, within a number of bytes. */
export class BodyCache {
  readonly #bodies = new Map<string, Body>();
  readonly #oldest = new OldestKeys(this.#bodies);
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The newest cached body, which becomes the most recently used. */
  get(id: string): Body | undefined {
    const body = this.#bodies.get(id);
    if (!body) return undefined;
    this.#bodies.delete(id);
    this.#bodies.set(id, body);
    return body;
  }

  /** Keeps a body, unless a newer version of it is here. */
  put(id: string, version: number, json: string | Buffer): void {
    const known = this.#bodies.get(id);
    if (known && known.version > version) return;
    this.delete(id);
    const bytes = cost(json);
    if (bytes > this.#maxBytes) return;
    this.#bodies.set(id, { version, json });
    this.#bytes += bytes;
    while (this.#bytes > this.#maxBytes) this.delete(this.#oldest.next()!);
  }

  delete(id: string): void {
    const body = this.#bodies.get(id);
    if (!body) return;
    this.#bytes -= cost(body.json);
    this.#bodies.delete(id);
  }
}

// V8 stores text with one byte per character, or two if any is not Latin; the higher is safe.
function cost(json: string | Buffer): number {
  return (typeof json === "string" ? json.length * 2 : json.length) + OVERHEAD_BYTES;
}
