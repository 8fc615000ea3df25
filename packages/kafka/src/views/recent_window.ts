import type { LogRecord } from "../topics/log_reader.ts";
import { byIdKey } from "../topics/records.ts";
import { type ArtifactSummary, summaryOfRecord } from "./artifact_summary.ts";

interface Seen extends ArtifactSummary {
  /** As in the index. */
  readonly key: string;
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

/** How far it may exceed its limit before it is cut, so that cutting is rare. */
const SLACK = 2;

/** The last artifacts of the index, of all partitions together, without their bodies. */
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

  /** Takes a record of the index, with its key and version. */
  onRecord(record: LogRecord, key: string, version: number): void {
    const known = this.#seen.get(key);
    if (known && known.version >= version) return;
    const artifact = summaryOfRecord(record, key, version);
    if (artifact) this.add(artifact, Number(record.timestamp));
  }

  /** Adds an artifact, or a newer version of it. */
  add(artifact: ArtifactSummary, at: number): void {
    const { org, id, version } = artifact;
    const key = byIdKey(org, id);
    this.#listener(artifact);
    const known = this.#seen.get(key);
    if (known && known.version >= version) return;
    this.#seen.set(key, { ...artifact, key, at, turn: this.#turns++ });
    this.#sorted = undefined;
    if (this.#seen.size > this.#size * SLACK) this.#cut();
  }

  /** Keys of the matching artifacts, newest first. Some may have been removed. */
  keys({ type, correlationId, org }: Omit<RecentQuery, "limit">): string[] {
    const wanted = (seen: Seen) =>
      seen.org === org &&
      (type === undefined || seen.type === type) &&
      (correlationId === undefined || seen.correlationId === correlationId);
    return this.#newestFirst()
      .slice(0, this.#size)
      .filter(wanted)
      .map(({ key }) => key);
  }

  #newestFirst(): Seen[] {
    this.#sorted ??= [...this.#seen.values()].sort((a, b) => b.at - a.at || b.turn - a.turn);
    return this.#sorted;
  }

  #cut(): void {
    const kept = this.#newestFirst().slice(0, this.#size);
    this.#seen = new Map(kept.map((seen) => [seen.key, seen]));
    this.#sorted = kept;
  }
}
