import { expect, test } from "vitest";
import {
  Fenced,
  type Log,
  type Retention,
  StreamGone,
} from "../../../../server/src/conversations/log/log.ts";
import { everything, type Handles, newStream, PLENTY, range, START, seqs, texts } from "./support.ts";

/** The promises of opening, fencing, trimming, deleting and expiring a stream. */
export function lifecyclePromises(handles: () => Handles): void {
  test("opens a stream before it has entries, and keeps its epoch when it is opened again", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const opened = await a.open(stream);
    expect(opened).toMatchObject({ floor: 0n, head: { seq: 0n } });
    expect(await b.open(stream)).toEqual(opened);
    expect(await b.bounds([stream])).toEqual([opened]);
    expect(await b.read(stream, START, PLENTY)).toEqual({ ...opened, entries: [] });
    const { epoch, head } = await b.append(stream, ["x"], { epoch: opened.epoch });
    expect(epoch).toBe(opened.epoch);
    expect(head.seq).toBe(1n);
    expect(await a.open(stream)).toEqual({ epoch, floor: 0n, head });
  });

  test("opens the same stream for all concurrent callers", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const all = await Promise.all(
      range(1, 20).map((i) => (i % 3 ? (i % 2 ? a : b).open(stream) : a.append(stream, ["x"]))),
    );
    expect(new Set(all.map((bounds) => bounds.epoch)).size).toBe(1);
    expect(await everything(a, stream)).toHaveLength(6);
  });

  test("refuses an append with another epoch, and creates nothing", async () => {
    const { a, b } = handles();
    const stream = newStream();
    await expect(a.append(stream, ["x"], { epoch: "another" })).rejects.toThrow(StreamGone);
    expect(await a.bounds([stream])).toEqual([undefined]);
    const before = await a.append(stream, ["x"]);
    await expect(b.append(stream, ["y"], { epoch: "another" })).rejects.toThrow(StreamGone);
    expect(await b.bounds([stream])).toEqual([before]);
  });

  test("every server refuses a lower fence than the highest one seen, and writes nothing", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const big = 2n ** 60n;
    await a.append(stream, ["5"], { fence: 5n });
    await b.append(stream, ["5 again"], { fence: 5n });
    await b.append(stream, ["7"], { fence: 7n });
    await expect(a.append(stream, ["6"], { fence: 6n })).rejects.toThrow(Fenced);
    await a.append(stream, ["no fence"]);
    await expect(b.append(stream, ["still 6"], { fence: 6n })).rejects.toThrow(Fenced);
    await a.append(stream, ["big"], { fence: big + 1n });
    await expect(b.append(stream, ["less by one"], { fence: big })).rejects.toThrow(Fenced);
    expect(texts(await everything(b, stream))).toEqual(["5", "5 again", "7", "no fence", "big"]);
  });

  test("a refused append does not affect others in the same commit", async () => {
    const { a } = handles();
    const [good, fenced, gone] = [newStream(), newStream(), newStream()];
    await a.append(fenced, ["x"], { fence: 9n });
    const outcomes = await Promise.allSettled([
      a.append(good, ["1"]),
      a.append(fenced, ["y"], { fence: 8n }),
      a.append(gone, ["y"], { epoch: "another" }),
      a.append(good, ["2"]),
    ]);
    expect(outcomes.map((each) => each.status)).toEqual(["fulfilled", "rejected", "rejected", "fulfilled"]);
    expect(texts(await everything(a, good))).toEqual(["1", "2"]);
  });

  test("deletes a stream, and starts a new epoch at 1 under its name", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const old = await a.append(stream, ["x", "y"], { fence: 3n });
    await b.delete(stream);
    await b.delete(stream);
    expect(await a.bounds([stream])).toEqual([undefined]);
    expect(await a.read(stream, START, PLENTY)).toBeUndefined();
    await expect(a.append(stream, ["z"], { epoch: old.epoch })).rejects.toThrow(StreamGone);
    const fresh = await a.append(stream, ["z"]);
    expect(fresh).toMatchObject({ floor: 0n, head: { seq: 1n } });
    expect(fresh.epoch).not.toBe(old.epoch);
    expect(texts(await everything(b, stream))).toEqual(["z"]);
  });

  test("a new generation starts with an empty stream and refuses late writers of the old one", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const old = await a.open(stream, 99n);
    await a.append(stream, ["secret"], { epoch: old.epoch, fence: 7n });
    expect(await b.open(stream, 99n)).toMatchObject({ epoch: old.epoch, head: { seq: 1n } });
    const fresh = await b.open(stream, 100n);
    expect(fresh).toMatchObject({ floor: 0n, head: { seq: 0n } });
    expect(fresh.epoch).not.toBe(old.epoch);
    expect((await b.read(stream, START, PLENTY))!.entries).toEqual([]);
    await expect(a.append(stream, ["late"], { epoch: old.epoch, fence: 8n })).rejects.toThrow(StreamGone);
    await expect(a.open(stream, 99n)).rejects.toThrow(StreamGone);
    // The fence of the old generation means nothing in the new one.
    await b.append(stream, ["mine"], { epoch: fresh.epoch, fence: 1n });
    expect(texts(await everything(a, stream))).toEqual(["mine"]);
    // Without a generation, it opens the existing stream.
    expect((await a.open(stream)).epoch).toBe(fresh.epoch);
  });

  test("a delete keeps a newer generation", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const { epoch } = await a.open(stream, 100n);
    await b.delete(stream, 99n);
    expect((await a.open(stream, 100n)).epoch).toBe(epoch);
    await b.delete(stream, 100n);
    expect(await a.bounds([stream])).toEqual([undefined]);
    expect((await a.open(stream, 99n)).epoch).not.toBe(epoch);
  });

  test("the bookmark moves forward only, and a missing stream has none", async () => {
    const { under, a, b } = handles();
    const stream = newStream();
    await a.bookmark(stream, { seq: 3n, time: 5 });
    expect(await a.bounds([stream])).toEqual([undefined]);
    await a.append(stream, ["1", "2"]);
    await a.open(stream);
    await a.append(stream, ["3", "4"]);
    const all = await everything(a, stream);
    const at = async () => under.bookmarkOf && Number(await under.bookmarkOf(stream));
    const expected = (seq: number) => under.bookmarkOf && seq;
    await a.bookmark(stream, all[3]!);
    expect(await at()).toBe(expected(4));
    await b.bookmark(stream, all[2]!);
    await a.bookmark(stream, START);
    expect(await at()).toBe(expected(4));
    expect(await everything(b, stream)).toEqual(all);
  });

  /** Trims 500 entries of 1000 bytes and five later ones, and checks what is true however much went. */
  async function trimmed(log: Log, other: Log, keep: (laterSince: number) => Retention): Promise<number> {
    const stream = newStream();
    for (const start of [0, 100, 200, 300, 400])
      await log.append(
        stream,
        range(1, 100).map((i) => String(start + i).padEnd(1_000, ".")),
      );
    const before = await everything(log, stream);
    const later = await laterThan(log, stream, before.at(-1)!.time);
    const count = Number(later.head.seq);
    const whole = await everything(other, stream);
    const removed = await log.trim(stream, keep(later.head.time));
    const kept = await everything(other, stream);
    expect(removed).toBe(count - kept.length);
    expect(kept).toEqual(whole.slice(removed));
    const [bounds] = await other.bounds([stream]);
    expect(bounds).toEqual({ epoch: later.epoch, floor: BigInt(removed), head: later.head });
    // A reader before the floor sees that the next entry is gone.
    const page = await other.read(stream, whole[0]!, PLENTY);
    if (removed > 1) expect(page!.entries[0]!.seq).toBeGreaterThan(2n);
    expect((await other.append(stream, ["next"])).head.seq).toBe(BigInt(count + 1));
    expect(seqs(await everything(log, stream))).toEqual(range(removed + 1, count + 1));
    return kept.length;
  }

  test("trimming by time keeps every entry since then", async () => {
    const { a, b } = handles();
    const kept = await trimmed(a, b, (since) => ({ since }));
    expect(kept).toBeGreaterThanOrEqual(5);
    expect(kept).toBeLessThan(250);
  });

  test("trimming by count keeps that many, or a few more", async () => {
    const { a, b } = handles();
    const kept = await trimmed(a, b, () => ({ entries: 20 }));
    expect(kept).toBeGreaterThanOrEqual(20);
    expect(kept).toBeLessThan(250);
  });

  test("trimming by bytes brings a stream down to about that size", async () => {
    const { a, b } = handles();
    const kept = await trimmed(a, b, () => ({ bytes: 50_000 }));
    expect(kept).toBeGreaterThan(10);
    expect(kept).toBeLessThan(300);
  });

  test("keeps an entry only while it is within every given limit", async () => {
    const { a, b } = handles();
    expect(await trimmed(a, b, () => ({ since: 0, entries: 20, bytes: 1 << 30 }))).toBeLessThan(250);
    expect(await trimmed(a, b, () => ({ since: 0, entries: 10_000, bytes: 1 << 30 }))).toBeGreaterThan(500);
    expect(await trimmed(a, b, () => ({}))).toBeGreaterThan(500);
  });

  test("never trims the last entry, and trims nothing of an empty or missing stream", async () => {
    const { a, b } = handles();
    const stream = newStream();
    const everyLimit: Retention = { since: Number.MAX_SAFE_INTEGER, entries: 0, bytes: 0 };
    expect(await a.trim(stream, everyLimit)).toBe(0);
    await a.open(stream);
    expect(await a.trim(stream, everyLimit)).toBe(0);
    await a.append(stream, ["1", "2", "3"]);
    for (const keep of [everyLimit, { entries: 0 }, { bytes: 0 }, { since: Number.MAX_SAFE_INTEGER }]) {
      await b.trim(stream, keep);
      expect((await everything(b, stream)).at(-1)?.data).toBe("3");
    }
    expect((await a.append(stream, ["4"])).head.seq).toBe(4n);
  });

  test("expires a stream, and starts a new epoch under its name", async (context) => {
    const { under, a, b } = handles();
    if (!under.expire) return context.skip();
    const stream = newStream();
    const old = await a.append(stream, ["x", "y", "z"], { fence: 3n });
    const opened = newStream();
    const empty = await a.open(opened);
    await under.expire(stream);
    await under.expire(opened);
    expect(await b.bounds([stream, opened])).toEqual([undefined, undefined]);
    expect(await a.read(stream, START, PLENTY)).toBeUndefined();
    await expect(a.append(stream, ["no"], { epoch: old.epoch })).rejects.toThrow(StreamGone);
    expect(await a.trim(stream, { entries: 1 })).toBe(0);
    await a.bookmark(stream, { seq: 2n, time: old.head.time });
    expect(await b.bounds([stream])).toEqual([undefined]);
    const fresh = await b.append(stream, ["new"], { fence: 1n });
    expect(fresh).toMatchObject({ floor: 0n, head: { seq: 1n } });
    expect(fresh.epoch).not.toBe(old.epoch);
    expect(texts(await everything(a, stream))).toEqual(["new"]);
    expect((await b.open(opened)).epoch).not.toBe(empty.epoch);
  });

  /** Appends until the clock that gives entries their time has moved on, and five entries more. */
  async function laterThan(log: Log, stream: string, time: number) {
    const { under } = handles();
    under.setClock?.(Math.max(time, Date.now()) + 1_000);
    for (let attempt = 0; attempt < 100; attempt++)
      if ((await log.append(stream, ["tick"])).head.time > time) break;
    const bounds = await log.append(stream, ["a", "b", "c", "d", "e"]);
    under.setClock?.(undefined);
    expect(bounds.head.time, "time moves on").toBeGreaterThan(time);
    return bounds;
  }
}
