import { Follower, START } from "@khala/test-support/conformance/log/support";
import { testContext } from "@khala/test-support/kit/context";
import { eventually } from "@khala/test-support/kit/eventually";
import { redisHere, startRedis, type TestRedis, testRedis } from "@khala/test-support/redis/redis";
import { groupOf, newStream, openTestLog } from "@khala/test-support/redis/redis_log";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const here = redisHere();
const MINUTE = 60_000;
const LIMITS = { entries: 100, bytes: 1 << 20 };

describe.runIf(here.shared)("what an operator finds in Redis", () => {
  let redis: TestRedis;
  beforeAll(async () => {
    redis = await testRedis();
  });
  afterAll(() => redis[Symbol.asyncDispose]());

  test("a conversation is the stream of its name: each entry has its time and sequence as id, and one field", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    const { head } = await log.append(stream, ["one", "two"]);
    expect(await redis.client.xrange(stream, "-", "+")).toEqual([
      [`${head.time}-1`, ["d", "one"]],
      [`${head.time}-2`, ["d", "two"]],
    ]);
    const meta = await redis.client.hgetall(`{${stream}}:meta`);
    expect(meta).toMatchObject({ seq: "2", time: String(head.time), bytes: "6" });
  });

  test("the group ui moves forward with delivered entries, and nothing is pending or consumed", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    await log.open(stream);
    await log.append(stream, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    const { entries } = (await log.read(stream, START, LIMITS))!;
    const moves = [];
    // By text the tenth would come before the ninth.
    for (const i of [1, 8, 9, 8, 0]) {
      await log.bookmark(stream, entries[i]!);
      moves.push(await groupOf(redis.client, stream));
    }
    const at = (i: number) => `${entries[i]!.time}-${entries[i]!.seq}`;
    expect(moves.map((group) => group!["last-delivered-id"])).toEqual([at(1), at(8), at(9), at(9), at(9)]);
    for (const group of moves) expect(group).toMatchObject({ pending: 0, consumers: 0 });
  });

  test("detects a consumer that takes entries from the group as from a queue", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    await log.open(stream);
    const { head } = await log.append(stream, ["1", "2", "3"]);
    await redis.client.xreadgroup("GROUP", "ui", "intruder", "COUNT", 2, "STREAMS", stream, ">");
    expect(await log.bookmark(stream, head)).toBe(2);
    await redis.client.xack(stream, "ui", `${head.time}-1`, `${head.time}-2`);
    expect(await log.bookmark(stream, head)).toBe(0);
  });

  test("a first attach to a stream with history creates the group at its end and logs it; a second changes nothing", async () => {
    const lines: Record<string, unknown>[] = [];
    const log = pino({ level: "info" }, { write: (line: string) => lines.push(JSON.parse(line)) });
    const context = { ...(await testContext()), log };
    await using first = await openTestLog(redis.url, { context });
    await using second = await openTestLog(redis.url, { context });
    const stream = newStream();
    const { head } = await first.append(stream, ["old", "older"]);
    const opened = await first.open(stream);
    expect(await second.open(stream)).toEqual(opened);
    expect(await groupOf(redis.client, stream)).toMatchObject({
      "last-delivered-id": `${head.time}-2`,
      pending: 0,
    });
    const told = lines.filter((line) => String(line.msg).includes("created at the end of the stream"));
    expect(told).toEqual([expect.objectContaining({ stream, skipped: "2" })]);
  });

  test("accepts a group created by somebody else", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    const { epoch } = await log.append(stream, ["x"]);
    await redis.client.xgroup("CREATE", stream, "ui", "0");
    expect((await log.open(stream)).epoch).toBe(epoch);
    expect(await groupOf(redis.client, stream)).toMatchObject({ "last-delivered-id": "0-0" });
  });

  test("a stream and its metadata have a TTL from the start, which only an append renews", async () => {
    await using log = await openTestLog(redis.url, { ttlMs: 10 * MINUTE });
    const stream = newStream();
    const keys = [stream, `{${stream}}:meta`];
    const left = () => Promise.all(keys.map((key) => redis.client.pttl(key)));
    const soon = () => Promise.all(keys.map((key) => redis.client.pexpire(key, MINUTE)));
    await log.open(stream);
    for (const ttl of await left()) expect(ttl).toBeGreaterThan(9 * MINUTE);
    await soon();
    await log.open(stream);
    for (const ttl of await left()) expect(ttl).toBeLessThanOrEqual(MINUTE);
    await log.append(stream, ["x"]);
    for (const ttl of await left()) expect(ttl).toBeGreaterThan(9 * MINUTE);
  });

  test("half of a stream counts as none: after either key is deleted, the next append starts a new epoch", async () => {
    await using log = await openTestLog(redis.url);
    for (const key of [(stream: string) => stream, (stream: string) => `{${stream}}:meta`]) {
      const stream = newStream();
      const old = await log.append(stream, ["a", "b"]);
      await redis.client.del(key(stream));
      expect(await log.bounds([stream])).toEqual([undefined]);
      const fresh = await log.append(stream, ["c"]);
      expect(fresh).toMatchObject({ floor: 0n, head: { seq: 1n } });
      expect(fresh.epoch).not.toBe(old.epoch);
      expect((await log.read(stream, START, LIMITS))!.entries).toHaveLength(1);
    }
  });

  test("watchers learn of a stream deleted by hand with the next entry, and of the log's own delete at once", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    await log.append(stream, ["old"]);
    const follower = await new Follower(log, stream).start();
    await redis.client.del(stream);
    const fresh = await log.append(stream, ["new"]);
    await follower.reaches(1n, fresh.epoch);
    expect(follower.entries.map(({ data }) => data)).toEqual(["new"]);
    const before = follower.calls;
    await log.delete(stream);
    await eventually("the watcher is told", () => follower.calls > before);
  });

  test("a foreign message on the channel makes watchers read", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    const told: string[] = [];
    const unwatch = await log.watch(stream, {
      appended: () => told.push("appended"),
      missed: () => told.push("missed"),
    });
    for (const payload of ["", "hello", "e 1 1", "e x 1\ndata", "e 1 -1\ndata"])
      await redis.client.publish(stream, payload);
    await eventually("all were heard", () => told.length === 5);
    expect(new Set(told)).toEqual(new Set(["missed"]));
    unwatch();
  });

  test("the bounds show entries that an operator trimmed by hand", async () => {
    await using log = await openTestLog(redis.url);
    const stream = newStream();
    await log.append(stream, ["a", "b", "c", "d"]);
    await redis.client.xtrim(stream, "MAXLEN", 2);
    expect(await log.bounds([stream])).toMatchObject([{ floor: 2n, head: { seq: 4n } }]);
    expect((await log.read(stream, START, LIMITS))!.entries.map(({ seq }) => seq)).toEqual([3n, 4n]);
  });
});

describe.runIf(here.own)("the log's use of Redis", () => {
  test("uses two connections, however many streams are watched", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    const count = async () => {
      const list = String(await server.client.client("LIST"));
      return list.split("\n").filter((line) => line.includes("name=khala")).length;
    };
    await log.append(newStream(), ["x"]);
    await eventually("the one that asked what the server is was closed", async () => (await count()) === 2);
    const streams = Array.from({ length: 200 }, newStream);
    const followers = await Promise.all(streams.map((stream) => new Follower(log, stream).start()));
    await Promise.all(streams.map((stream) => log.append(stream, ["x"])));
    for (const follower of followers) await follower.reaches(1n);
    expect(await count()).toBe(2);
    for (const follower of followers) follower.stop();
    await eventually("no channel is left", async () => (await server.client.pubsub("CHANNELS")).length === 0);
    await log.stop();
    await eventually("no connection is left", async () => (await count()) === 0);
  });

  test("appends with one command", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    const stream = newStream();
    await log.append(stream, ["first"]);
    await server.client.config("RESETSTAT");
    for (let i = 0; i < 10; i++) await log.append(stream, ["a", "b"]);
    const stats = await server.client.info("commandstats");
    expect(stats).toMatch(/cmdstat_evalsha:calls=10,/);
    expect(stats).not.toMatch(/cmdstat_(eval|time|script)\b/);
  });
});
