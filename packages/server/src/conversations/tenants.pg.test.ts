import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Viewer } from "../access/viewer.ts";
import type { EngineFactory } from "./engines/engine.ts";
import type { ConversationPlane } from "./plane.ts";
import { deleteDuringFirstMessage, engineOf, GatedEngine, Servers } from "./test_support.ts";
import type { OutgoingFrames } from "./timeline/timeline.ts";

const ada = testViewer();
const bob = testViewer({ subject: "bob" });
const eve = testViewer({ org: "zeta", subject: "eve" });
const service = testViewer({ subject: "bot", scopes: ["chat:service"] });
const conv = "support";
const quick = engineOf(async function* ({ message }) {
  yield { text_delta: { text: `${message}!` } };
});

/** The texts of a conversation, as its reader sees them. */
async function said(plane: ConversationPlane, caller: Viewer): Promise<string[]> {
  const { messages = [] } = await plane.state(caller, conv);
  return messages.map(({ parts }) => parts![0]!.text ?? "");
}

const finished = (plane: ConversationPlane, caller: Viewer) =>
  until("the end", async () => (await plane.run(caller, conv))?.status === "finished");

/** A socket that keeps its frames. */
function socket() {
  const frames: string[] = [];
  const offer = ({ frames: sent }: OutgoingFrames) => {
    frames.push(...sent.map(({ json }) => json));
    return true;
  };
  return { frames, subscriber: { offer, end() {} } };
}

test("two orgs use the same ids for everything and never notice", async () => {
  await using servers = await Servers.open();
  const a = await servers.start({ engine: quick });
  const b = await servers.start({ engine: quick });
  const command = { convId: conv, message: "from ada", idempotencyKey: "k" };
  const first = await a.plane.chat(ada, command);
  const second = await b.plane.chat(eve, { ...command, message: "from eve" });
  expect(second.run_id).not.toBe(first.run_id);
  await finished(a.plane, ada);
  await finished(b.plane, eve);
  for (const { plane } of [a, b]) {
    expect(await said(plane, ada)).toEqual(["from ada", "from ada!"]);
    expect(await said(plane, eve)).toEqual(["from eve", "from eve!"]);
    expect((await plane.list(eve, { after: "", limit: 10 })).conversations).toHaveLength(1);
  }
  expect(await a.plane.chat(ada, command)).toEqual(first);
  const page = await a.plane.log(eve, conv, undefined, 100);
  expect(page.events.join()).not.toContain("ada");
  await expect(
    a.plane.follow(eve, conv, first.cursor!, AbortSignal.timeout(10_000))[Symbol.asyncIterator]().next(),
  ).rejects.toMatchObject({ code: "stale_cursor" });
  const names = await servers.database.query<{ name: string }>({
    text: "SELECT log_name AS name FROM runtime.conversations ORDER BY org_id",
  });
  expect(names[0]).toEqual({ name: `chat:${conv}` });
  expect(names[1]!.name).toMatch(`chat:${conv}:`);
});

test("a socket, a stop and a delete affect the conversation of one org only", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane } = await servers.start({ engine: engine.factory });
  const sockets = { ada: socket(), eve: socket() };
  await plane.attach(ada, conv, sockets.ada.subscriber, { kind: "now" });
  await plane.attach(eve, conv, sockets.eve.subscriber, { kind: "now" });
  await plane.attach(eve, conv, sockets.eve.subscriber, { kind: "now" });
  expect([ada, eve].map(({ org }) => plane.attachedTo({ org, convId: conv }))).toEqual([1, 2]);
  await plane.chat(ada, { convId: conv, message: "one" });
  expect(await plane.stopRun(eve, conv)).toEqual({ stopped: false });
  await plane.chat(eve, { convId: conv, message: "two" });
  await until("both run", () => engine.started.length === 2);
  await plane.remove(eve, conv);
  await expect(plane.state(eve, conv)).rejects.toMatchObject({ code: "not_found" });
  engine.release("one");
  await finished(plane, ada);
  expect(await said(plane, ada)).toEqual(["one", "one: done"]);
  expect(sockets.ada.frames.join()).toContain("run_finished");
  expect(sockets.ada.frames.join()).not.toMatch(/two|deleted/);
  expect(sockets.eve.frames.join()).not.toContain("one");
});

test("an engine never answers another org's conversation, nor the next one with the same id", async () => {
  await using servers = await Servers.open();
  /** Says what it remembers. */
  const factory: EngineFactory = () => {
    const memory: string[] = [];
    return {
      async *run({ message }) {
        memory.push(message);
        yield { text_delta: { text: memory.join(" ") } };
      },
    };
  };
  const a = await servers.start({ engine: factory });
  const b = await servers.start({ engine: factory });
  const ask = async (caller: Viewer, message: string) => {
    await a.plane.chat(caller, { convId: conv, message });
    await finished(a.plane, caller);
    return (await said(a.plane, caller)).at(-1);
  };
  expect(await ask(ada, "secret")).toBe("secret");
  expect(await ask(ada, "again")).toBe("secret again");
  expect(await ask(eve, "hello")).toBe("hello");
  // The other server drops the engine that it has: none.
  await b.plane.remove(ada, conv);
  expect(await ask(bob, "mine")).toBe("mine");
});

test("a subject reaches its own conversations, a service those of its org only", async () => {
  await using servers = await Servers.open();
  const { plane, reported } = await servers.start({ engine: quick });
  await plane.chat(ada, { convId: conv, message: "hi" });
  await finished(plane, ada);
  for (const caller of [bob, testViewer({ org: "zeta", subject: "ada", scopes: ["chat:service"] })]) {
    const denied = [
      () => plane.state(caller, conv),
      () => plane.run(caller, conv),
      () => plane.log(caller, conv, undefined, 10),
      () => plane.stopRun(caller, conv),
      () => plane.remove(caller, conv),
    ];
    for (const call of denied)
      await expect(call()).rejects.toThrow(`There is no conversation "${conv}", or you may not see it.`);
  }
  expect(await said(plane, service)).toEqual(["hi", "hi!"]);
  const { run_id } = await plane.chat(service, { convId: conv, message: "from the service" });
  await finished(plane, ada);
  const { events } = await plane.log(ada, conv, undefined, 100);
  expect(events.filter((event) => event.includes("run_started")).at(-1)).toContain('"subject":"bot"');
  await until("the authority's event", () => reported.includes(`${run_id} run.completed`));
  const [run] = await servers.database.query({
    text: "SELECT subject, sender FROM runtime.conversation_runs WHERE run_id = $1",
    values: [run_id],
  });
  expect(run).toEqual({ subject: "ada", sender: "bot" });
  await plane.remove(service, conv);
  await expect(plane.state(ada, conv)).rejects.toMatchObject({ code: "not_found" });
});

test("one org's runs never take the slots of others, and the refusal names the quota", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, context } = await servers.start({
    engine: engine.factory,
    maxEngines: 4,
    maxRunsPerOrg: 2,
  });
  const chat = (caller: Viewer, message: string) => plane.chat(caller, { convId: message, message });
  const refused = { code: "limit_exceeded", details: { field: "chat_runs", retry_after_ms: 1_000 } };
  const outcomes = await Promise.allSettled(["1", "2", "3", "4"].map((message) => chat(ada, message)));
  expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
  await expect(chat(bob, "5")).rejects.toMatchObject(refused);
  await chat(eve, "6");
  await chat(eve, "7");
  await expect(chat(testViewer({ org: "third" }), "8")).rejects.toMatchObject({ code: "overloaded" });
  expect(await context.telemetry.scrape()).toMatch(/quota_rejections_total\{[^}]*chat_runs[^}]*\} [34]\b/);
  await until("it runs", () => engine.started.includes("6"));
  engine.release("6");
  await until("a place", async () => (await plane.run(eve, "6"))?.status === "finished");
  await until("it is free", () => chat(eve, "9").catch(() => undefined));
});

test("an org without a free slot does not delay the queues of others", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const full = await servers.start({ engine: engine.factory, maxRunsPerOrg: 1 });
  await full.plane.chat(ada, { convId: "busy", message: "busy" });
  const stopping = await servers.start({ engine: engine.factory });
  for (const message of ["first", "second"])
    await stopping.plane.chat(eve, { convId: conv, message, policy: "queue" });
  await stopping.plane.stop();
  // More than one sweep reads, and all of them have waited longer.
  await servers.database.query({
    text: `INSERT INTO runtime.conversations (org_id, conv_id, log_name, owner, queued, updated_at)
      SELECT 'acme', 'c' || i, 'chat:c' || i, 'ada', 1, now() - interval '1 hour' FROM generate_series(1, 60) i`,
  });
  await full.plane.sweep();
  await until("it runs", () => engine.started.includes("second"));
});

test("limits an org's messages per second without affecting others", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({
    engine: quick,
    maxMessagesPerOrg: 2,
    clock: { now: () => 1_000_000, after: () => () => {} },
  });
  const send = (caller: Viewer, convId: string) => plane.chat(caller, { convId, message: "hi" });
  await send(ada, "c1");
  await send(ada, "c2");
  const details = { field: "chat_messages", retry_after_ms: 500 };
  await expect(send(bob, "c3")).rejects.toMatchObject({ code: "limit_exceeded", details });
  await send(eve, "c1");
});

test.each(["before", "after"] as const)(
  "a late writer of a deleted conversation leaves nothing to the next one of its id, which begins %s it writes",
  async (next) => {
    await using servers = await Servers.open();
    const { messages } = await deleteDuringFirstMessage(servers, next);
    expect(messages).toEqual(["mine"]);
  },
);

test("a late writer of a deleted conversation does not bring its log back", async () => {
  await using servers = await Servers.open();
  expect((await deleteDuringFirstMessage(servers, "never")).left).toBeUndefined();
});
