import { randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { endOf, engineOf, eventsOf, GatedEngine, Servers } from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;

test("answers interrupts in the order in which they were sent, before the queue", async () => {
  await using servers = await Servers.open();
  const gate = Promise.withResolvers<void>();
  const started: string[] = [];
  // The first run ends late, so that everything else waits behind it.
  const engine = engineOf(async function* ({ message }) {
    started.push(message);
    if (message === "one") await gate.promise;
    yield { text_delta: { text: "done" } };
  });
  const { plane } = await servers.start({ engine, queueLimit: 5 });
  const conv = convId();
  const say = (message: string, policy: "queue" | "interrupt") =>
    plane.chat(ada, { convId: conv, message, policy });
  await say("one", "queue");
  await until("one to run", () => started.includes("one"));
  await say("queued", "queue");
  await say("first", "interrupt");
  await say("second", "interrupt");
  await say("queued later", "queue");
  await say("third", "interrupt");
  gate.resolve();
  await until("all to run", () => started.length === 6);
  expect(started).toEqual(["one", "first", "second", "third", "queued", "queued later"]);
});

test("refuses a key with other content, while its run is active, queued and ended", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const send = (message: string, key: string, policy?: "queue") =>
    plane.chat(ada, { convId: conv, message, idempotencyKey: key, ...(policy && { policy }) });
  const conflict = expect.objectContaining({
    code: "idempotency_conflict",
    meaning: { status: 409, close: 4409, retryable: false },
  });
  const first = await send("one", "k1");
  await expect(send("other", "k1")).rejects.toEqual(conflict);
  const second = await send("two", "k2", "queue");
  await expect(send("other", "k2", "queue")).rejects.toEqual(conflict);
  // The policy is not part of the content.
  expect(await send("two", "k2")).toEqual(second);
  await until("one to run", () => engine.started.includes("one"));
  engine.release("one");
  await until("two to run", () => engine.started.includes("two"));
  engine.release("two");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  await expect(send("other", "k1")).rejects.toEqual(conflict);
  expect(await send("one", "k1")).toEqual(first);
  expect(engine.started).toEqual(["one", "two"]);
});

test("after a failed run, the same key and content start another run of the same message", async () => {
  await using servers = await Servers.open();
  let calls = 0;
  const engine = engineOf(async function* () {
    if (++calls === 1) throw new Error("not now");
    yield { text_delta: { text: "here it is" } };
  });
  const { plane, log } = await servers.start({ engine });
  const conv = convId();
  const command = { convId: conv, message: "hello", idempotencyKey: "k" };
  const first = await plane.chat(ada, command);
  await until("the failure", async () => (await plane.run(ada, conv))?.status === "failed");
  await expect(plane.chat(ada, { ...command, message: "other" })).rejects.toMatchObject({
    code: "idempotency_conflict",
  });
  const second = await plane.chat(ada, command);
  expect(second.run_id).not.toBe(first.run_id);
  expect(second.message_id).toBe(first.message_id);
  await until("the answer", () => endOf(log, conv, second.run_id!));
  const ids = (await eventsOf(log, conv)).flatMap(({ event }) => event.message?.message_id ?? []);
  expect(ids).toEqual([first.message_id, first.message_id]);
  // The question is stored once.
  const { messages = [] } = await plane.state(ada, conv);
  expect(messages.filter(({ role }) => role === "user").map(({ parts }) => parts)).toEqual([
    [{ text: "hello" }],
  ]);
  expect(await plane.chat(ada, command)).toEqual(second);
  expect(calls).toBe(2);
});

test("after a stopped run, the same key gets the same answer, and starts nothing", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const command = { convId: conv, message: "hello", idempotencyKey: "k" };
  const first = await plane.chat(ada, command);
  await plane.stopRun(ada, conv);
  await until("the stop", async () => (await plane.run(ada, conv))?.status === "stopped");
  expect(await plane.chat(ada, command)).toEqual(first);
  expect(engine.started).toEqual(["hello"]);
});
