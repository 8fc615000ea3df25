import { randomUUID } from "node:crypto";
import { expect, vi } from "vitest";
import type {
  Appended,
  Entry,
  Log,
  Position,
  Watcher,
} from "../../../../server/src/conversations/log/log.ts";

/** A log for the suite, and the actions that only its driver can take. */
export interface LogUnderTest extends AsyncDisposable {
  readonly log: Log;
  /** Another server's handle on the same store. The opener of the log stops it. */
  another(): Promise<Log>;
  /** Lets a stream expire. */
  expire?(stream: string): Promise<void>;
  /** Sets the clock of the entries' timestamps; undefined restores it. */
  setClock?(ms: number | undefined): void;
  /** The position of the bookmark `ui`. */
  bookmarkOf?(stream: string): Promise<bigint | undefined>;
}

/** The fixtures of the suite: two servers' handles, opened before the first test. */
export interface Handles {
  readonly under: LogUnderTest;
  readonly a: Log;
  readonly b: Log;
}

export const START: Position = { seq: 0n, time: 0 };
export const PLENTY = { entries: 100_000, bytes: 64 << 20 };

/** A unique stream name. */
export function newStream(): string {
  return `chat:test-${randomUUID()}`;
}

/** All retained entries of a stream, read in as many pages as needed. */
export async function everything(log: Log, stream: string, limits = PLENTY): Promise<Entry[]> {
  const all: Entry[] = [];
  for (let after = START; ; after = all.at(-1)!) {
    const page = await log.read(stream, after, limits);
    if (!page || page.entries.length === 0) return all;
    all.push(...page.entries);
  }
}

export const texts = (entries: readonly Entry[]) => entries.map((entry) => entry.data);
export const seqs = (entries: readonly Entry[]) => entries.map((entry) => Number(entry.seq));

/** 1 to n, or from..to. */
export const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Follows a stream as a reader must: it reads only when it is notified, or when the sequence shows a gap. */
export class Follower implements Watcher {
  readonly #log: Log;
  readonly #stream: string;
  readonly #broken: Appended[] = [];
  #stale = true;
  #unwatch: (() => void) | undefined;
  epoch: string | undefined;
  entries: Entry[] = [];
  calls = 0;

  constructor(log: Log, stream: string) {
    this.#log = log;
    this.#stream = stream;
  }

  async start(): Promise<this> {
    this.#unwatch = await this.#log.watch(this.#stream, this);
    await this.catchUp();
    return this;
  }

  stop(): void {
    this.#unwatch?.();
    this.#unwatch = undefined;
  }

  appended({ epoch, entries }: Appended): void {
    this.calls++;
    // Kept for later: a driver may swallow a watcher's exception.
    const whole =
      entries.length > 0 && entries.every((entry, i) => entry.seq === entries[0]!.seq + BigInt(i));
    if (!whole) this.#broken.push({ epoch, entries });
    const first = entries[0]?.seq ?? 0n;
    const next = (this.entries.at(-1)?.seq ?? 0n) + 1n;
    if (epoch !== this.epoch || first > next) this.#stale = true;
    else this.entries.push(...entries.filter((entry) => entry.seq >= next));
  }

  missed(): void {
    this.calls++;
    this.#stale = true;
  }

  /** Reads the entries it was notified of and does not have. */
  async catchUp(): Promise<void> {
    while (this.#stale) {
      this.#stale = false;
      const page = await this.#log.read(this.#stream, this.entries.at(-1) ?? START, PLENTY);
      if (page?.epoch === this.epoch) {
        const last = this.entries.at(-1)?.seq ?? 0n;
        this.entries.push(...(page?.entries.filter((entry) => entry.seq > last) ?? []));
      } else {
        this.epoch = page?.epoch;
        this.entries = [];
        this.#stale = page !== undefined;
      }
    }
  }

  /** Waits until it has the entry with this sequence, and checks that it has every entry before it. */
  async reaches(seq: bigint, epoch?: string): Promise<void> {
    await vi.waitFor(
      async () => {
        await this.catchUp();
        expect(this.#broken, "news that is empty or has gaps").toEqual([]);
        if (epoch !== undefined) expect(this.epoch).toBe(epoch);
        expect(this.entries.at(-1)?.seq ?? 0n).toBe(seq);
      },
      { timeout: 15_000, interval: 10 },
    );
  }
}
