import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type Bounds,
  type Entry,
  type Log,
  StreamGone,
} from "../../../../server/src/conversations/log/log.ts";
import { everything, Follower, type Handles, newStream, START } from "./support.ts";

/** The same runs every time; a failure prints the seed and the shortest failing steps. */
const SEED = 20260401;
const STREAMS = 3;

type Step = { readonly stream: number; readonly second: boolean } & (
  | { readonly do: "append"; readonly entries: readonly string[]; readonly epoch: "any" | "this" | "another" }
  | { readonly do: "read"; readonly from: number; readonly limit: number }
  | { readonly do: "trim"; readonly keep: number }
  | { readonly do: "bookmark"; readonly at: number }
  | { readonly do: "open" | "delete" | "watch" | "unwatch" }
);

/** The expected state of a stream: the entries of this epoch, and how many were trimmed. */
interface Expected {
  readonly epoch: string;
  readonly entries: Entry[];
  floor: number;
}

const target = { stream: fc.nat(STREAMS - 1), second: fc.boolean() };
const text = fc.string({ unit: "grapheme", maxLength: 12 }).filter((each) => !/[\0\n\r]/.test(each));
const append = fc.record({
  ...target,
  do: fc.constant("append" as const),
  entries: fc.array(text, { minLength: 1, maxLength: 5 }),
  epoch: fc.constantFrom("any" as const, "any" as const, "this" as const, "another" as const),
});
const read = fc.record({
  ...target,
  do: fc.constant("read" as const),
  from: fc.nat(30),
  limit: fc.integer({ min: 1, max: 8 }),
});
const trim = fc.record({ ...target, do: fc.constant("trim" as const), keep: fc.nat(6) });
const bookmark = fc.record({ ...target, do: fc.constant("bookmark" as const), at: fc.nat(30) });
const plain = fc.record({
  ...target,
  do: fc.constantFrom("open" as const, "delete" as const, "watch" as const, "unwatch" as const),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { arbitrary: append, weight: 6 },
  { arbitrary: read, weight: 3 },
  { arbitrary: trim, weight: 1 },
  { arbitrary: bookmark, weight: 1 },
  { arbitrary: plain, weight: 3 },
);

/** The promises of any sequence of operations. */
export function modelPromises(handles: () => Handles): void {
  test("two servers see each stream as one list of entries", {
    timeout: 120_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), async (steps) => {
        const world = new World(handles());
        try {
          for (const each of steps) await world.take(each);
          await world.check();
        } finally {
          await world.end();
        }
      }),
      { seed: SEED, numRuns: 40 },
    );
  });
}

class World {
  readonly #handles: Handles;
  readonly #names = Array.from({ length: STREAMS }, newStream);
  readonly #expected: (Expected | undefined)[] = [];
  readonly #followers: (Follower | undefined)[] = [];

  constructor(handles: Handles) {
    this.#handles = handles;
  }

  async take(step: Step): Promise<void> {
    const log = step.second ? this.#handles.b : this.#handles.a;
    const name = this.#names[step.stream]!;
    const expected = this.#expected[step.stream];
    const end = expected?.entries.length ?? 0;
    switch (step.do) {
      case "append":
        return this.#append(log, step.stream, step.entries, step.epoch);
      case "read": {
        const from = Math.min(step.from, end);
        const position = expected?.entries[from - 1] ?? START;
        const page = await log.read(name, position, { entries: step.limit, bytes: 1 << 20 });
        expect(page?.entries).toEqual(
          expected?.entries.slice(Math.max(from, expected.floor)).slice(0, step.limit),
        );
        return this.#same(page, expected);
      }
      case "trim": {
        const removed = await log.trim(name, { entries: step.keep });
        if (expected) expected.floor += removed;
        expect(expected?.floor ?? 0).toBeLessThanOrEqual(Math.max(0, end - Math.max(1, step.keep)));
        return;
      }
      case "bookmark":
        await log.bookmark(name, expected?.entries[Math.min(step.at, end) - 1] ?? START);
        return;
      case "open": {
        const bounds = await log.open(name);
        this.#expected[step.stream] ??= { epoch: bounds.epoch, entries: [], floor: 0 };
        return this.#same(bounds, this.#expected[step.stream]);
      }
      case "delete":
        await log.delete(name);
        this.#expected[step.stream] = undefined;
        return;
      case "watch":
        this.#followers[step.stream] ??= await new Follower(log, name).start();
        return;
      case "unwatch":
        this.#followers[step.stream]?.stop();
        this.#followers[step.stream] = undefined;
    }
  }

  async #append(log: Log, stream: number, texts: readonly string[], which: "any" | "this" | "another") {
    const expected = this.#expected[stream];
    const epoch = which === "this" ? expected?.epoch : which === "another" ? "another" : undefined;
    const appended = log.append(this.#names[stream]!, texts, epoch === undefined ? {} : { epoch });
    if (which === "another") return expect(appended).rejects.toThrow(StreamGone);
    const bounds = await appended;
    const now = expected ?? { epoch: bounds.epoch, entries: [], floor: 0 };
    this.#expected[stream] = now;
    const kept = await everything(log, this.#names[stream]!);
    const fresh = kept.slice(-texts.length);
    expect(fresh.map((entry) => entry.data)).toEqual(texts);
    expect(fresh[0]!.seq).toBe(BigInt(now.entries.length + 1));
    expect(fresh[0]!.time).toBeGreaterThanOrEqual(now.entries.at(-1)?.time ?? 0);
    now.entries.push(...fresh);
    this.#same(bounds, now);
  }

  #same(bounds: Bounds | undefined, expected: Expected | undefined): void {
    expect(bounds?.epoch).toBe(expected?.epoch);
    expect(bounds?.floor).toBe(expected && BigInt(expected.floor));
    const last = expected?.entries.at(-1);
    if (last) expect(bounds?.head).toEqual({ seq: last.seq, time: last.time });
    else expect(bounds?.head.seq).toBe(expected && 0n);
  }

  /** Checks that both servers, and the watchers, have exactly the expected entries. */
  async check(): Promise<void> {
    const { a, b } = this.#handles;
    for (const [i, name] of this.#names.entries()) {
      const expected = this.#expected[i];
      for (const log of [a, b]) {
        expect(await everything(log, name)).toEqual(expected?.entries.slice(expected.floor) ?? []);
        this.#same((await log.bounds([name]))[0], expected);
      }
      const follower = this.#followers[i];
      if (!follower || !expected?.entries.length) continue;
      await follower.reaches(expected.entries.at(-1)!.seq, expected.epoch);
      const first = Number(follower.entries[0]!.seq);
      const seen = follower.entries.map((entry) => expected.entries[Number(entry.seq) - 1]);
      expect(follower.entries).toEqual(seen);
      expect(first).toBeLessThanOrEqual(expected.floor + 1);
    }
  }

  async end(): Promise<void> {
    for (const follower of this.#followers) follower?.stop();
    for (const name of this.#names) await this.#handles.a.delete(name);
  }
}
