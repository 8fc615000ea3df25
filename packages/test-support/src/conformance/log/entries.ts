import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { everything, type Handles, newStream, PLENTY, range, START, seqs, texts } from "./support.ts";

/** The promises of appending and reading. */
export function entryPromises(handles: () => Handles): void {
  test("numbers entries from 1 without gaps, whichever server appends", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const first = await a.append(stream, ["one", "two"]);
    const second = await b.append(stream, ["three"]);
    expect([first.head.seq, second.head.seq]).toEqual([2n, 3n]);
    expect([first.floor, second.floor]).toEqual([0n, 0n]);
    expect(second.epoch).toBe(first.epoch);
    expect(first.epoch).toMatch(/^[A-Za-z0-9-]{1,64}$/);
    const page = await a.read(stream, START, PLENTY);
    expect(page).toMatchObject({ epoch: first.epoch, floor: 0n, head: second.head });
    expect(seqs(page!.entries)).toEqual([1, 2, 3]);
    expect(texts(page!.entries)).toEqual(["one", "two", "three"]);
    expect(page!.entries[2]).toMatchObject(second.head);
  });

  test("keeps the entries of one call together, however many servers append at once", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const calls = range(0, 59);
    const bounds = await Promise.all(
      calls.map((call) =>
        (call % 2 ? a : b).append(
          stream,
          range(0, call % 7).map((i) => `${call} ${i}`),
        ),
      ),
    );
    const all = await everything(a, stream);
    expect(seqs(all)).toEqual(range(1, all.length));
    expect(all).toHaveLength(calls.reduce((sum, call) => sum + (call % 7) + 1, 0));
    for (const call of calls) {
      const size = (call % 7) + 1;
      const last = Number(bounds[call]!.head.seq);
      expect(texts(all.slice(last - size, last))).toEqual(range(0, size - 1).map((i) => `${call} ${i}`));
    }
    expect(new Set(bounds.map((each) => each.epoch)).size).toBe(1);
  });

  test("keeps the order of one server's appends", async () => {
    const { a } = handles();
    const stream = newStream();
    const words = range(1, 50).map(String);
    await Promise.all(words.map((word) => a.append(stream, [word])));
    expect(texts(await everything(a, stream))).toEqual(words);
  });

  test("timestamps never decrease, even when the clock does", async () => {
    const { under, a, b } = handles();
    const stream = newStream();
    const now = Date.now();
    for (const [i, ms] of [0, 60_000, -60_000, 30_000].entries()) {
      under.setClock?.(now + ms);
      await (i % 2 ? a : b).append(stream, ["x", "y"]);
    }
    under.setClock?.(undefined);
    const { head } = await a.append(stream, ["z"]);
    const times = (await everything(b, stream)).map((entry) => entry.time);
    expect(times).toEqual(times.toSorted((x, y) => x - y));
    expect(times.every(Number.isSafeInteger)).toBe(true);
    expect(head.time).toBe(times.at(-1));
  });

  test("a page starts after the position, stays within its limits, and has at least one entry", async () => {
    const { a, b } = handles();
    const stream = newStream();
    await a.append(
      stream,
      range(1, 10).map((i) => String(i).padEnd(1_000, "x")),
    );
    const all = await everything(b, stream);
    const after = async (seq: number, entries: number, bytes: number) => {
      const page = await b.read(stream, seq ? all[seq - 1]! : START, { entries, bytes });
      return seqs(page!.entries);
    };
    expect(await after(0, 4, 1 << 20)).toEqual([1, 2, 3, 4]);
    expect(await after(7, 100, 1 << 20)).toEqual([8, 9, 10]);
    expect(await after(5, 100, 1)).toEqual([6]);
    const some = await after(2, 100, 3_500);
    expect(some.length).toBeLessThanOrEqual(3);
    expect(some).toEqual(range(3, 2 + some.length));
    expect(some.length).toBeGreaterThan(0);
    expect(await after(10, 100, 1 << 20)).toEqual([]);
    expect(seqs(await everything(b, stream, { entries: 3, bytes: 2_500 }))).toEqual(range(1, 10));
  });

  test("returns nothing for a missing stream, and no head", async () => {
    const { a } = handles();
    const missing = newStream();
    expect(await a.read(missing, START, PLENTY)).toBeUndefined();
    expect(await a.bounds([missing])).toEqual([undefined]);
    expect(await a.bounds([])).toEqual([]);
  });

  test("returns the heads of many streams in the order of the request", async () => {
    const { a, b } = handles();
    const streams = range(1, 20).map(newStream);
    const bounds = await Promise.all(
      streams.map((stream, i) => (i % 3 === 0 ? undefined : a.append(stream, range(1, i).map(String)))),
    );
    expect(await b.bounds(streams)).toEqual(bounds);
    const twice = [streams[2]!, streams[0]!, streams[1]!, streams[2]!];
    expect(await b.bounds(twice)).toEqual([bounds[2], undefined, bounds[1], bounds[2]]);
  });

  test("returns text unchanged", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const odd = [
      "",
      " ",
      "\t",
      "NULL",
      "{}",
      `"'\\"\\\\'{,}`,
      "\\x00 \\n %s $1 :a",
      "ü 漢字 👩‍👩‍👧 é é \u2028 \u0085 \u0001",
      JSON.stringify({ text: 'a "b"\n\\c\0' }),
    ];
    await a.append(stream, odd);
    const big = "漢\\\"'x".repeat(150_000);
    await b.append(stream, [big]);
    const all = texts(await everything(b, stream));
    expect(all.slice(0, -1)).toEqual(odd);
    expect(all.at(-1) === big, "1 MB as it was given").toBe(true);
  });

  test("refuses invalid entries with a reason, and appends nothing", async () => {
    const { a } = handles();
    const stream = newStream();
    const refused = async (entries: string[], reason: RegExp) => {
      const error: unknown = await a.append(stream, entries).catch((thrown) => thrown);
      expect(error).toBeInstanceOf(KhalaError);
      expect(error).toMatchObject({ code: "invalid_request", message: expect.stringMatching(reason) });
    };
    await refused([], /at least one/i);
    await refused(["fine", "two\nlines"], /line break/i);
    await refused(["two\rlines"], /line break/i);
    expect(await a.bounds([stream])).toEqual([undefined]);
  });
}
