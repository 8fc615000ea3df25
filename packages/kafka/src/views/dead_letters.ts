import { KhalaError } from "@khala/contracts";
import {
  type DeadLetter,
  type DeadLetterName,
  type DeadLetterPage,
  type DeadLetterQuery,
  NO_ORG,
} from "@khala/server/blackboard";
import type { Bounds } from "../topics/catch_up.ts";
import { decodeDeadLetter } from "../topics/decoding.ts";
import type { LogRecord, Position } from "../topics/log_reader.ts";
import { keyOf } from "./correlations.ts";

/** Reads a topic of dead letters. It has one partition. */
export interface DeadLetterLog {
  readonly topic: string;
  /** The current bounds, once everything up to them has been read. */
  readonly fresh: () => Promise<Bounds>;
  readonly range: (from: Position, to: number) => Promise<LogRecord[]>;
}

interface Noted extends DeadLetterName {
  readonly offset: number;
  /** As `keyOf` builds it. */
  readonly correlation: string | undefined;
}

const PARTITION = 0;
const MAX_NOTED = 10_000;
/** Offsets read at once when reading backwards. */
const STEP = 200;
/** How far one page searches for the letters of an org; the next page continues from there. */
const MAX_SCAN = 20_000;

/** The dead letters of an agent: their positions in memory, as far as there is room; all of them in the log. */
export class DeadLetters {
  readonly #agent: string;
  readonly #log: DeadLetterLog;
  #noted: Noted[] = [];
  readonly #byName = new Map<string, Noted>();

  constructor(agent: string, log: DeadLetterLog) {
    this.#agent = agent;
    this.#log = log;
  }

  get topic(): string {
    return this.#log.topic;
  }

  /** The letters from `low`, the first offset left in the log; the newest ones if there are more than the bound. */
  names(low: number): DeadLetterName[] {
    const kept = this.#noted.findIndex(({ offset }) => offset >= low);
    this.#drop(kept < 0 ? this.#noted.length : kept);
    return [...this.#byName.values()].slice(-MAX_NOTED);
  }

  /** Takes a record of the topic. */
  onRecord = (record: LogRecord): DeadLetter => {
    const letter = this.#letter(record);
    const noted = { ...nameOf(letter), offset: record.at, correlation: correlationOf(letter) };
    this.#noted.push(noted);
    this.#byName.set(nameKey(noted), noted);
    if (this.#noted.length > MAX_NOTED * 2) this.#drop(MAX_NOTED);
    return letter;
  };

  /** Newest first. A page may be short, as the log is that of all orgs: as long as there is a `next`, there is more. */
  async list({ orgs, correlationId, after, limit }: DeadLetterQuery): Promise<DeadLetterPage> {
    const correlations =
      correlationId === undefined ? undefined : orgs.map((org) => keyOf({ org, name: correlationId }));
    const suits = ({ org, correlation = "" }: Pick<Noted, "org" | "correlation">) =>
      correlations?.includes(correlation) ?? orgs.includes(org);
    const { low, end: stable } = await this.#log.fresh();
    const deadLetters: DeadLetter[] = [];
    let end = Math.min(after === undefined ? stable : cursor(after), stable);
    const enough = Math.max(low, end - MAX_SCAN);
    while (end > enough) {
      const offset = this.#stepBack(end, low, limit - deadLetters.length, suits);
      const records = await this.#range(offset, end);
      for (const record of records.reverse()) {
        const letter = this.#letter(record);
        if (!suits({ ...nameOf(letter), correlation: correlationOf(letter) })) continue;
        deadLetters.push(letter);
        if (deadLetters.length === limit)
          return { deadLetters, ...(record.at > low && { next: record.offset }) };
      }
      end = offset;
    }
    return { deadLetters, ...(end > low && { next: String(end) }) };
  }

  /** Dead letters of these orgs, in the order of the ids: by offset where memory has it, else by one scan backwards. */
  async named(orgs: readonly string[], ids: readonly string[]): Promise<DeadLetter[]> {
    const found = new Map<string, DeadLetter>();
    const take = (records: readonly LogRecord[], wanted: ReadonlySet<string>) => {
      for (const record of records) {
        const letter = this.#letter(record);
        const name = nameKey(nameOf(letter));
        if (wanted.has(name)) found.set(name, letter);
      }
    };
    const names = ids.flatMap((id) => orgs.map((org) => nameKey({ org, id })));
    const isFresh = ids.every((id) => orgs.some((org) => this.#byName.has(nameKey({ org, id }))));
    const { low } = isFresh ? { low: 0 } : await this.#log.fresh();
    const offsets = names.flatMap((name) => this.#byName.get(name)?.offset ?? []).sort((a, b) => a - b);
    for (const [from, to] of spansOf(offsets)) take(await this.#range(from, to), new Set(names));
    const older = new Set(isFresh ? [] : names.filter((name) => !this.#byName.has(name)));
    const all = found.size + older.size;
    for (let end = this.#noted[0]?.offset ?? low; older.size > 0 && end > low && found.size < all; ) {
      const from = Math.max(low, end - STEP);
      take(await this.#range(from, end), older);
      end = from;
    }
    return names.flatMap((name) => found.get(name) ?? []);
  }

  /** Forgets the oldest; the newest of several letters with one id counts. */
  #drop(count: number): void {
    for (const noted of this.#noted.splice(0, count))
      if (this.#byName.get(nameKey(noted)) === noted) this.#byName.delete(nameKey(noted));
  }

  #range(offset: number, to: number): Promise<LogRecord[]> {
    return this.#log.range({ topic: this.#log.topic, partition: PARTITION, offset }, to);
  }

  /** The start of a step back from `end`: at the next letters known in memory, else by a fixed length. */
  #stepBack(end: number, low: number, wanted: number, suits: (noted: Noted) => boolean): number {
    const first = this.#noted[0];
    const furthest = Math.max(low, end - STEP);
    if (!first || first.offset >= end) return furthest;
    let left = wanted;
    for (let i = this.#noted.length - 1; i >= 0; i--) {
      const noted = this.#noted[i]!;
      if (noted.offset >= end) continue;
      if (noted.offset < furthest) break;
      if (!suits(noted)) continue;
      if (--left === 0) return Math.max(low, noted.offset);
    }
    return furthest;
  }

  #letter(record: LogRecord): DeadLetter {
    const { topic, partition, offset } = record;
    return decodeDeadLetter(record, { topic, partition, offset }, this.#agent);
  }
}

/** Ranges of at most one step that contain all of these sorted offsets. */
function spansOf(offsets: readonly number[]): [from: number, to: number][] {
  const spans: [from: number, to: number][] = [];
  for (const offset of offsets) {
    const last = spans.at(-1);
    if (last && offset - last[0] < STEP) last[1] = offset + 1;
    else spans.push([offset, offset + 1]);
  }
  return spans;
}

/** A record that cannot be decoded may belong to any org. */
function nameOf({ id, task }: DeadLetter): DeadLetterName {
  return { id, org: task?.artifacts[0].org_id ?? NO_ORG };
}

function nameKey({ org, id }: DeadLetterName): string {
  return `${id}@${org}`;
}

function correlationOf({ task }: DeadLetter): string | undefined {
  const [artifact] = task?.artifacts ?? [];
  return artifact?.correlation_id && keyOf({ org: artifact.org_id, name: artifact.correlation_id });
}

function cursor(after: string): number {
  const offset = Number(after);
  if (/^\d{1,15}$/.test(after)) return offset;
  throw new KhalaError(
    "invalid_request",
    "`after` must be the unchanged `next` of the previous page of dead letters.",
    {
      field: "after",
    },
  );
}
