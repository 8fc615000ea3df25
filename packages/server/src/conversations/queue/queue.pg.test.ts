import { randomUUID } from "node:crypto";
import type { QueuedMessageJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import type { Attached } from "../plane.ts";
import { endOf, eventsOf, GatedEngine, Servers, type TestServer } from "../test_support.ts";

const ada = testViewer();
const convId = () => `conv-${randomUUID()}`;
const textsOf = (queued: readonly QueuedMessageJson[] = []) =>
  queued.map(({ parts }) => parts?.map(({ text }) => text).join(""));

interface Frame {
  readonly type: string;
  readonly queued?: QueuedMessageJson[];
}

/** The frames that a socket gets. */
async function attach({ plane }: TestServer, conv: string): Promise<Attached & { frames: Frame[] }> {
  const frames: Frame[] = [];
  const attached = await plane.attach(
    ada,
    conv,
    {
      offer: (sent) => {
        frames.push(...sent.frames.map(({ json }) => JSON.parse(json)));
        return true;
      },
      end: () => {},
    },
    { kind: "now" },
  );
  return Object.assign(attached, { frames });
}

/** The queue events of the log, in order. */
async function changesOf({ log }: TestServer, conv: string): Promise<unknown[]> {
  return (await eventsOf(log, conv)).flatMap(({ runId, event }) =>
    event.queue_changed ? [[runId, ...textsOf(event.queue_changed.queued)]] : [],
  );
}

async function busy(servers: Servers, more: object = {}) {
  const engine = new GatedEngine();
  const server = await servers.start({ engine: engine.factory, ...more });
  const conv = convId();
  const say = (message: string, idempotencyKey?: string) =>
    server.plane.chat(ada, {
      convId: conv,
      message,
      policy: "queue",
      ...(idempotencyKey && { idempotencyKey }),
    });
  await say("one");
  await until("one to run", () => engine.started.includes("one"));
  return { engine, server, conv, say };
}

test("the queue is in the state and in hello, and every change is an event without a run", async () => {
  await using servers = await Servers.open();
  const { engine, server, conv, say } = await busy(servers);
  const { plane } = server;
  const two = await say("two");
  await say("three");
  const queued = [
    {
      run_id: two.run_id,
      message_id: two.message_id,
      parts: [{ text: "two" }],
      author: ada.subject,
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
    },
    expect.objectContaining({ parts: [{ text: "three" }] }),
  ];
  expect((await plane.state(ada, conv)).queued).toEqual(queued);
  expect(await plane.queue(ada, conv)).toEqual({ queued });
  const socket = await attach(server, conv);
  expect(socket.frames[0]).toMatchObject({ type: "hello", queued });
  engine.release("one");
  await until("two to run", () => engine.started.includes("two"));
  await until("its change", async () => (await changesOf(server, conv)).length === 3);
  engine.release("two");
  await until("three to run", () => engine.started.includes("three"));
  await until("the last change", async () => (await changesOf(server, conv)).length === 4);
  expect(await changesOf(server, conv)).toEqual([["", "two"], ["", "two", "three"], ["", "three"], [""]]);
  expect((await plane.state(ada, conv)).queued).toEqual([]);
  socket.close();
});

test("a queued message can be edited, keeping its id and place, until its run begins", async () => {
  await using servers = await Servers.open();
  const { engine, server, conv, say } = await busy(servers);
  const { plane, log } = server;
  const two = await say("two", "k");
  await say("three");
  const edited = await plane.editQueued(ada, conv, two.run_id!, { message: "zwei" });
  expect(textsOf(edited.queued)).toEqual(["zwei", "three"]);
  // A repeated request is still known by what was sent.
  expect(await say("two", "k")).toEqual(two);
  await until("the change", async () => (await changesOf(server, conv)).length === 3);
  expect((await changesOf(server, conv)).at(-1)).toEqual(["", "zwei", "three"]);
  for (const message of ["", "  ", "a\0b"])
    await expect(plane.editQueued(ada, conv, two.run_id!, { message })).rejects.toMatchObject({
      code: "invalid_request",
    });
  engine.release("one");
  await until("zwei to run", () => engine.started.includes("zwei"));
  await expect(plane.editQueued(ada, conv, two.run_id!, { message: "late" })).rejects.toMatchObject({
    code: "run_begun",
    meaning: { status: 409 },
  });
  await expect(plane.cancelQueued(ada, conv, two.run_id!)).rejects.toMatchObject({ code: "run_begun" });
  await expect(plane.cancelQueued(ada, conv, "nothing")).rejects.toMatchObject({ code: "not_found" });
  const said = (await eventsOf(log, conv)).flatMap(({ event }) => event.message ?? []);
  expect(said.at(-1)).toMatchObject({ message_id: two.message_id, text: "zwei" });
});

test("a cancelled message never runs, and followers of its run get an end", async () => {
  await using servers = await Servers.open();
  const { engine, server, conv, say } = await busy(servers);
  const { plane, log } = server;
  const two = await say("two", "k");
  await say("three");
  const socket = await attach(server, conv);
  const followed: string[] = [];
  const following = (async () => {
    for await (const { runId, event } of plane.follow(ada, conv, two.cursor!, AbortSignal.timeout(20_000)))
      if (runId === two.run_id) {
        followed.push(Object.keys(event)[0]!);
        if (event.run_stopped) return event.run_stopped;
      }
    return undefined;
  })();
  expect(textsOf((await plane.cancelQueued(ada, conv, two.run_id!)).queued)).toEqual(["three"]);
  expect(await following).toEqual({ reason: "cancelled" });
  expect(followed).toEqual(["run_stopped"]);
  expect((await plane.run(ada, conv, two.run_id!))?.status).toBe("stopped");
  // The run under way is not disturbed: sockets that join now still get its words.
  const late = await attach(server, conv);
  expect(late.frames.map(({ type }) => type)).toEqual(["hello", "snapshot"]);
  engine.release("one");
  await until("three to run", () => engine.started.includes("three"));
  engine.release("three");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  expect(engine.started).toEqual(["one", "three"]);
  // Its key starts nothing any more.
  expect(await say("two", "k")).toEqual(two);
  expect(await endOf(log, conv, two.run_id!)).toEqual({ run_stopped: { reason: "cancelled" } });
  socket.close();
  late.close();
});

test("a stop with a run id stops that run only: active, queued, or gone", async () => {
  await using servers = await Servers.open();
  const { engine, server, conv, say } = await busy(servers);
  const { plane } = server;
  const [two, three] = [await say("two"), await say("three")];
  expect(await plane.stopRun(ada, conv, two.run_id)).toEqual({ run_id: two.run_id, stopped: true });
  expect(await plane.stopRun(ada, conv, two.run_id)).toEqual({ stopped: false });
  expect(textsOf((await plane.queue(ada, conv)).queued)).toEqual(["three"]);
  engine.release("one");
  await until("three to run", () => engine.started.includes("three"));
  expect(await plane.stopRun(ada, conv, three.run_id)).toEqual({ run_id: three.run_id, stopped: true });
  await until("the stop", async () => (await plane.run(ada, conv, three.run_id))?.status === "stopped");
  expect(await plane.stopRun(ada, conv)).toEqual({ stopped: false });
});

test("a stop right after the end of a run stops the next one", async () => {
  await using servers = await Servers.open();
  let gate = Promise.resolve();
  const { server, conv, say } = await busy(servers, {
    wrapDatabase: (database: Database): Database => ({
      ...database,
      interactive: (work) => gate.then(() => database.interactive(work)),
    }),
  });
  const { plane, log } = server;
  const one = (await plane.run(ada, conv))!.run_id!;
  const two = await say("two");
  const held = Promise.withResolvers<void>();
  gate = held.promise;
  expect(await plane.stopRun(ada, conv)).toEqual({ run_id: one, stopped: true });
  await until("its end in the log", () => endOf(log, conv, one));
  // The end is not in the run's row yet: this stop waits for it.
  const stopped = plane.stopRun(ada, conv);
  await plane.state(ada, conv);
  held.resolve();
  expect(await stopped).toEqual({ run_id: two.run_id, stopped: true });
  await until("the stop", async () => (await plane.run(ada, conv, two.run_id))?.status === "stopped");
});

test("only the author of a queued message may edit it, and others learn nothing", async () => {
  await using servers = await Servers.open();
  const { server, conv, say } = await busy(servers);
  const { plane } = server;
  const two = await say("two");
  const stranger = testViewer({ subject: "bob" });
  for (const call of [
    () => plane.queue(stranger, conv),
    () => plane.editQueued(stranger, conv, two.run_id!, { message: "x" }),
    () => plane.cancelQueued(stranger, conv, two.run_id!),
  ])
    await expect(call()).rejects.toMatchObject({
      code: "not_found",
      message: `There is no conversation "${conv}", or you may not see it.`,
    });
  // Another conversation's runs are not there.
  const { run_id } = await plane.chat(ada, { convId: convId(), message: "elsewhere" });
  await expect(plane.cancelQueued(ada, conv, run_id!)).rejects.toMatchObject({ code: "not_found" });
});

test("frames contain the beginning of long queued messages; the queue has them whole", async () => {
  await using servers = await Servers.open();
  const { server, conv, say } = await busy(servers);
  const long = "x".repeat(100_000);
  for (let i = 0; i < 3; i++) await say(long);
  const [last] = (await eventsOf(server.log, conv)).filter(({ event }) => event.queue_changed).slice(-1);
  expect(textsOf(last!.event.queue_changed!.queued).map((text) => text!.length)).toEqual([
    1_000, 1_000, 1_000,
  ]);
  expect(textsOf((await server.plane.queue(ada, conv)).queued)).toEqual([long, long, long]);
});
