import type { Artifact } from "@khala/server/blackboard";
import { decodeArtifact } from "./decoding.ts";
import type { LogRecord } from "./log_reader.ts";

interface Seen {
  readonly id: string;
  readonly type: string;
  readonly org: string;
  readonly correlationId: string | undefined;
  readonly version: number;
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Of those of one millisecond, which came last. */
  readonly turn: number;
}

export interface RecentQuery {
  readonly type?: string;
  readonly correlationId?: string;
  readonly org: string;
  readonly limit: number;
}

/** How much may be over before it is cut, so that cutting is rare. */
const SLACK = 1.25;

/** The last artifacts of the index, of all partitions together: what they are, not what is in them. */
export class RecentWindow {
  readonly #size: number;
  readonly #listener: (artifact: Artifact) => void;
  #seen = new Map<string, Seen>();
  #sorted: Seen[] | undefined;
  #turns = 0;

  constructor(size: number, listener: (artifact: Artifact) => void) {
    this.#size = size;
    this.#listener = listener;
  }

  /** Takes a record of the index, and the version that it has. */
  onRecord(record: LogRecord, version: number): void {
    const known = record.key && this.#seen.get(record.key.toString());
    if (known && known.version >= version) return;
    const decoded = decodeArtifact(record);
    if (decoded.ok) this.add(decoded.value, Number(record.timestamp));
  }

  /** Adds an artifact, or a newer version of it. */
  add(artifact: Artifact, at: number): void {
    const { id, type, org_id: org, correlation_id: correlationId, version } = artifact;
    this.#listener(artifact);
    const known = this.#seen.get(id);
    if (known && known.version >= version) return;
    this.#seen.set(id, { id, type, org, correlationId, version, at, turn: this.#turns++ });
    this.#sorted = undefined;
    if (this.#seen.size > this.#size * SLACK) this.#cut();
  }

  /** Ids that suit, newest first. Some may be gone. */
  ids({ type, correlationId, org }: Omit<RecentQuery, "limit">): string[] {
    const wanted = (seen: Seen) =>
      seen.org === org &&
      (type === undefined || seen.type === type) &&
      (correlationId === undefined || seen.correlationId === correlationId);
    return this.#newestFirst()
      .slice(0, this.#size)
      .filter(wanted)
      .map(({ id }) => id);
  }

  #newestFirst(): Seen[] {
    this.#sorted ??= [...this.#seen.values()].sort((a, b) => b.at - a.at || b.turn - a.turn);
    return this.#sorted;
  }

  #cut(): void {
    const kept = this.#newestFirst().slice(0, this.#size);
    this.#seen = new Map(kept.map((seen) => [seen.id, seen]));
    this.#sorted = kept;
  }
}
