import { randomUUID } from "node:crypto";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { testRedis } from "@khala/test-support/redis/redis";
import { newStream, openTestLog } from "@khala/test-support/redis/redis_log";
import { pino } from "pino";
import { expect, test } from "vitest";
import { GatedEngine, Servers } from "../../test_support.ts";
import { eventFrame } from "../../timeline/timeline.ts";

const START = { seq: 0n, time: 0 };
const LIMITS = { entries: 1_000, bytes: 1 << 20 };
const ours = (text: string) => JSON.stringify({ run_id: "", event: { status: { text } } });

interface Frame {
  readonly type: string;
  readonly seq?: string;
  readonly run_id?: string;
  readonly event?: Record<string, unknown>;
}

/** The entries of a stream as sockets get them. */
async function framesOf(log: Awaited<ReturnType<typeof openTestLog>>, stream: string): Promise<Frame[]> {
  const page = (await log.read(stream, START, LIMITS))!;
  return page.entries.map((entry) => JSON.parse(eventFrame("c", page.epoch, entry).json));
}

test.each([
  ["valid, in the server's format", ["d", ours("hi")], { status: { text: "hi" } }],
  [
    "valid, with line breaks",
    ["d", '{"run_id":"",\n"event":{"status":\n{"text":"hi"}}}'],
    { status: { text: "hi" } },
  ],
  ["valid, as fields", ["run_id", "", "event", '{"status":{"text":"hi"}}'], { status: { text: "hi" } }],
  ["valid, as a payload", ["payload", ours("hi")], { status: { text: "hi" } }],
  ["without a known field", ["what", "ever"], {}],
  ["with wrong JSON", ["d", "{"], {}],
  ["with no event", ["d", "null"], {}],
  ["with an unknown event", ["d", '{"run_id":"","event":{"dance":{}}}'], {}],
  ["with an event of the server alone", ["d", '{"run_id":"r","event":{"run_finished":{}}}'], {}],
  [
    "with an integer that would be rounded",
    ["d", '{"event":{"custom":{"name":"n","data":9007199254740993}}}'],
    {},
  ],
  ["with bytes that are no text", ["d", Buffer.from([0xff, 0, 0xfe])], {}],
  ["that is too large", ["d", ours("x".repeat(300_000))], {}],
])("a foreign record %s gets the next number, and the reader continues", async (_, fields, expected) => {
  await using redis = await testRedis();
  await using log = await openTestLog(redis.url);
  const stream = newStream();
  await log.append(stream, [ours("first")]);
  await redis.client.xadd(stream, "*", ...fields);
  // Before the server notices it, it has no number, and is not read.
  expect((await framesOf(log, stream)).map(({ seq }) => seq)).toEqual(["1"]);
  const [bounds] = await log.bounds([stream]);
  expect(bounds).toMatchObject({ floor: 0n, head: { seq: 2n } });
  await log.append(stream, [ours("last")]);
  const frames = await framesOf(log, stream);
  expect(frames.map(({ seq }) => seq)).toEqual(["1", "2", "3"]);
  expect(frames[1]).toMatchObject({ run_id: "", event: expected });
  expect(frames[1]!.event).toEqual(expected);
  expect(await redis.client.xlen(stream)).toBe(3);
});

test("numbers foreign records before an append ahead of it, whatever their ids", async () => {
  await using redis = await testRedis();
  await using log = await openTestLog(redis.url);
  for (const id of ["*", "9007199254740-7", "99999999999999-18446744073709551615"]) {
    const stream = newStream();
    const { epoch } = await log.open(stream);
    await redis.client.xadd(stream, "*", "d", ours("a"));
    await redis.client.xadd(stream, id, "d", ours("b"));
    const { head } = await log.append(stream, [ours("c"), ours("d")], { epoch });
    expect(head.seq).toBe(4n);
    const page = (await log.read(stream, START, LIMITS))!;
    expect(page.floor).toBe(0n);
    expect(page.entries.map(({ seq }) => seq)).toEqual([1n, 2n, 3n, 4n]);
    const events = page.entries.map(
      (entry) => JSON.parse(eventFrame("c", epoch, entry).json).event.status.text,
    );
    expect(events).toEqual(["a", "b", "c", "d"]);
  }
});

test("an id after which nothing can be appended ends the stream, and the next append starts a new one", async () => {
  await using redis = await testRedis();
  await using log = await openTestLog(redis.url);
  const stream = newStream();
  const { epoch } = await log.append(stream, [ours("a")]);
  await redis.client.xadd(stream, "18446744073709551615-18446744073709551615", "d", ours("b"));
  const [bounds] = await log.bounds([stream]);
  const next = await log.append(stream, [ours("c")]);
  expect([bounds?.epoch === epoch, next.epoch === epoch]).toEqual([false, false]);
  expect((await log.read(stream, START, LIMITS))!.entries).toHaveLength(1);
});

test("a foreign event reaches open sockets during a run; an invalid one is set aside with a warning", async () => {
  await using redis = await testRedis();
  await using redisLog = await openTestLog(redis.url);
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const warnings: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void warnings.push(JSON.parse(line).msg) });
  const { plane } = await servers.start({
    engine: engine.factory,
    wrapLog: () => redisLog,
    context: { ...(await testContext()), log },
  });
  const ada = testViewer();
  const convId = `conv-${randomUUID()}`;
  await plane.chat(ada, { convId, message: "one" });
  await until("the run", () => engine.started.includes("one"));
  const frames: Frame[] = [];
  const attached = await plane.attach(
    ada,
    convId,
    {
      offer(sent) {
        frames.push(...sent.frames.map(({ json }) => JSON.parse(json)));
        return true;
      },
      end: () => expect.fail("the socket was closed"),
    },
    { kind: "now" },
  );
  const stream = `chat:${convId}`;
  await redis.client.xadd(stream, "*", "d", ours("from outside"));
  await until("the event", () => frames.some(({ event }) => JSON.stringify(event)?.includes("outside")));
  await redis.client.xadd(stream, "*", "nothing", "known");
  await until("the empty event", () => frames.some(({ event }) => event && Object.keys(event).length === 0));
  engine.release("one");
  await until("the end", () => frames.some(({ event }) => event?.run_finished));
  const seqs = frames.flatMap(({ seq }) => (seq === undefined ? [] : BigInt(seq)));
  expect(seqs).toEqual(seqs.map((_, i) => seqs[0]! + BigInt(i)));
  expect(warnings.filter((text) => text.includes("set aside"))).toHaveLength(1);
  expect((await plane.state(ada, convId)).messages).toHaveLength(2);
  attached.close();
});
