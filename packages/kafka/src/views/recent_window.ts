import type { LogRecord } from "../topics/log_reader.ts";
import { type ArtifactSummary, summaryOfRecord } from "./artifact_summary.ts";

interface Seen extends ArtifactSummary {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Breaks ties within a millisecond. */
  readonly turn: number;
}

export interface RecentQuery {
  readonly type?: string;
  readonly correlationId?: string;
  readonly org: string;
  readonly limit: number;
}

/** How much may be over before it is cut, so that cutting is rare. */
const SLACK = 2;

/** The last artifacts of the index, of all partitions together: what they are, not what is in them. */
export class RecentWindow {
  readonly #size: number;
  readonly #listener: (artifact: ArtifactSummary) => void;
  #seen = new Map<string, Seen>();
  #sorted: Seen[] | undefined;
  #turns = 0;

  constructor(size: number, listener: (artifact: ArtifactSummary) => void) {
    this.#size = size;
    this.#listener = listener;
  }

  /** Takes a record of the index, and the id and version that it has. */
  onRecord(record: LogRecord, id: string, version: number): void {
    const known = this.#seen.get(id);
    if (known && known.version >= version) return;
    const artifact = summaryOfRecord(record, id, version);
    if (artifact) this.add(artifact, Number(record.timestamp));
  }

  /** Adds an artifact, or a newer version of it. */
  add(artifact: ArtifactSummary, at: number): void {
    const { id, version } = artifact;
    this.#listener(artifact);
    const known = this.#seen.get(id);
    if (known && known.version >= version) return;
    this.#seen.set(id, { ...artifact, at, turn: this.#turns++ });
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
