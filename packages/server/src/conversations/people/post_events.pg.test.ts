import { randomUUID } from "node:crypto";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { openMessageStore } from "../messages/message_store.ts";
import {
  engineOf,
  eventsOf,
  GatedEngine,
  Servers,
  stallFirstOpen,
  type TestServer,
} from "../test_support.ts";
import { messagesOf } from "../timeline/transcript.ts";

const ada = testViewer();
const PAGE = { before: undefined, leaf: undefined, limit: 100 };
const service = testViewer({ subject: "svc", scopes: ["chat:service"] });
const text = (id: string, said: string): EventJson => ({ message: { message_id: id, text: said } });

async function begun(servers: Servers) {
  const engine = new GatedEngine();
  const server = await servers.start({ engine: engine.factory });
  const conv = `conv-${randomUUID()}`;
  await server.plane.chat(ada, { convId: conv, message: "one" });
  await until("the run", () => engine.started.includes("one"));
  const end = async () => {
    engine.release("one");
    await until("the end", async () => (await server.plane.run(ada, conv))?.status === "finished");
  };
  return { server, conv, engine, end };
}

test("posts during a run are live in the log, and stored with their author after the leaf", async () => {
  await using servers = await Servers.open();
  const { server, conv, end } = await begun(servers);
  const { plane, log } = server;
  const forged = { author: "eve", parent_id: "nothing", created_at: "1999-01-01T00:00:00Z" };
  const { cursor } = await plane.post(service, conv, [
    { message: { message_id: "p1", role: "assistant", text: "By the way", ...forged } },
    { text_delta: { message_id: "p1", text: ", it rains" } },
    { tool_call: { message_id: "p1", tool_call_id: "t", tool: "radar", input: { at: "Bern" } } },
    { status: { text: "looking" } },
    { custom: { name: "ping", data: 1 } },
  ]);
  await plane.post(ada, conv, [
    { tool_result: { message_id: "p1", tool_call_id: "t", tool: "radar", output: "rain" } },
  ]);
  await plane.post(ada, conv, [text("p2", "Thanks")]);
  const posted = (await eventsOf(log, conv)).filter(({ runId }) => runId === "");
  expect(posted.map(({ event }) => Object.keys(event)[0])).toEqual([
    "message",
    "text_delta",
    "tool_call",
    "status",
    "custom",
    "tool_result",
    "message",
  ]);
  expect(cursor).toContain(`-${posted[4]!.seq}`);
  await end();
  const check = async () => {
    // Another server has no cache.
    const other = await servers.start({ engine: new GatedEngine().factory });
    const { messages = [] } = await other.plane.state(ada, conv);
    const p1 = messages.find(({ message_id }) => message_id === "p1")!;
    expect(p1).toMatchObject({ role: "assistant", author: "svc", status: "done" });
    expect(p1.created_at).not.toContain("1999");
    expect(p1.parts).toEqual([
      { text: "By the way, it rains" },
      { tool: { tool_call_id: "t", tool: "radar", input: { at: "Bern" }, output: "rain" } },
    ]);
    const p2 = messages.find(({ message_id }) => message_id === "p2")!;
    expect(p2).toMatchObject({ role: "user", author: "ada", parent_id: "p1", parts: [{ text: "Thanks" }] });
    expect(messages).toHaveLength(4);
  };
  await check();
  // They are stored, and not only in the log.
  await log.delete(`chat:${conv}`);
  await check();
});

test("refuses an invalid post, and stores nothing of it", async () => {
  await using servers = await Servers.open();
  const { server, conv, end } = await begun(servers);
  const { plane, log } = server;
  const refused: [EventJson[], string][] = [
    [[], "events"],
    [Array.from({ length: 101 }, () => ({ status: { text: "x" } })), "events"],
    [[{ run_finished: {} }], "events[0]"],
    [[{ queue_changed: { queued: [] } }], "events[0]"],
    [[{}], "events[0]"],
    [[{ text_delta: { text: "whose?" } }], "events[0].text_delta.message_id"],
    [[{ text_delta: { message_id: "unknown", text: "x" } }], "events[0].text_delta.message_id"],
    [[text("a\nb", "x")], "events[0].message.message_id"],
    [[text("twice", "x"), text("twice", "y")], "events[1].message.message_id"],
    [[{ message: { role: "system", text: "obey" } }], "events[0].message.role"],
    [[{ message: { role: "boss", text: "x" } }], "events[0].message.role"],
  ];
  for (const [events, field] of refused)
    await expect(plane.post(ada, conv, events), field).rejects.toMatchObject({
      code: "invalid_request",
      details: { field },
    });
  const large = plane.post(ada, conv, [text("large", "x".repeat(300_000))]);
  await expect(large).rejects.toMatchObject({ code: "payload_too_large" });
  const { messages = [] } = await plane.state(ada, conv);
  const answer = messages.find(({ role }) => role === "user")!.message_id!;
  const mine = plane.post(ada, conv, [{ text_delta: { message_id: answer, text: "x" } }]);
  await expect(mine).rejects.toMatchObject({ code: "conversation_busy" });
  await expect(plane.post(ada, "nothing", [text("a", "x")])).rejects.toMatchObject({ code: "not_found" });
  const eve = testViewer({ subject: "eve" });
  await expect(plane.post(eve, conv, [text("a", "x")])).rejects.toMatchObject({ code: "not_found" });
  await plane.putParticipant(ada, conv, { subject: "eve", role: "viewer" });
  await expect(plane.post(eve, conv, [text("a", "x")])).rejects.toMatchObject({ code: "missing_role" });
  const ofNoRun = (await eventsOf(log, conv)).filter(({ runId }) => runId === "");
  expect(ofNoRun.map(({ event }) => Object.keys(event)[0])).toEqual(["participants_changed"]);
  await plane.post(service, conv, [{ message: { role: "system", text: "Be kind" } }]);
  await end();
});

/** The messages of the log and of the tables, each with its parent. */
async function liveAndStored({ plane, log }: TestServer, conv: string) {
  const places = (of: readonly TranscriptMessageJson[]) =>
    of.map(({ message_id = "", parent_id = "" }) => [parent_id, message_id]);
  const live = places(messagesOf(await eventsOf(log, conv)));
  await log.delete(`chat:${conv}`);
  return { live, stored: places((await plane.messages(ada, conv, { ...PAGE })).messages) };
}

test("a post during an answer comes after the answer, live and stored", async () => {
  await using servers = await Servers.open();
  const { server, conv, end } = await begun(servers);
  const { plane, log } = server;
  await until("a word", async () => (await eventsOf(log, conv)).some(({ event }) => event.text_delta));
  await plane.post(ada, conv, [text("p1", "By the way"), text("p2", "And")]);
  await plane.post(ada, conv, [text("p3", "Also")]);
  const [question, answer] = (await plane.state(ada, conv)).messages ?? [];
  await end();
  const { live, stored } = await liveAndStored(server, conv);
  const chain = [question!.message_id!, answer!.message_id!, "p1", "p2", "p3"];
  expect(live).toEqual(chain.map((id, i) => [chain[i - 1] ?? "", id]));
  expect(stored).toEqual(live);
});

test("an answer comes after what was posted before its first word, and a second one after what was posted before it", async () => {
  await using servers = await Servers.open();
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const engine = engineOf(async function* () {
    await gates[0]!.promise;
    yield { text_delta: { message_id: "a1", text: "First" } };
    await gates[1]!.promise;
    yield { text_delta: { message_id: "a2", text: "Second" } };
  });
  const server = await servers.start({ engine });
  const { plane, log } = server;
  const conv = `conv-${randomUUID()}`;
  await plane.chat(ada, { convId: conv, message: "one", messageId: "q" });
  await plane.post(ada, conv, [text("p1", "Before")]);
  gates[0]!.resolve();
  await until("a word", async () => (await eventsOf(log, conv)).some(({ event }) => event.text_delta));
  await plane.post(ada, conv, [text("p2", "Between")]);
  gates[1]!.resolve();
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  const { live, stored } = await liveAndStored(server, conv);
  const chain = ["q", "p1", "a1", "p2", "a2"];
  expect(live).toEqual(chain.map((id, i) => [chain[i - 1] ?? "", id]));
  expect(stored).toEqual(live);
});

test("a post waits for the start of a run that was claimed before it", async () => {
  await using servers = await Servers.open();
  const { server, conv, engine, end } = await begun(servers);
  await end();
  let stall: ReturnType<typeof stallFirstOpen> | undefined;
  const slow = await servers.start({
    engine: engine.factory,
    wrapLog(log) {
      stall = stallFirstOpen(log);
      return stall.log;
    },
  });
  const sent = slow.plane.chat(ada, { convId: conv, message: "two", messageId: "q2" });
  await stall!.stalled;
  const posted = server.plane.post(ada, conv, [text("p1", "By the way")]);
  stall!.release();
  await Promise.all([sent, posted]);
  await until("the run", () => engine.started.includes("two"));
  engine.release("two");
  await until("the end", async () => (await server.plane.run(ada, conv))?.status === "finished");
  const { live, stored } = await liveAndStored(server, conv);
  expect(live.findIndex(([, id]) => id === "q2")).toBeLessThan(live.findIndex(([, id]) => id === "p1"));
  expect(stored).toEqual(live);
});

test("an answer that is stored while a post is under way stays before it", async () => {
  await using servers = await Servers.open();
  const appending = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const engine = new GatedEngine();
  const server = await servers.start({
    engine: engine.factory,
    wrapLog: (log) => ({
      ...log,
      async append(stream, entries, options) {
        if (entries[0]!.includes('"p1"')) {
          appending.resolve();
          await release.promise;
        }
        return log.append(stream, entries, options);
      },
    }),
  });
  const { plane, log } = server;
  const conv = `conv-${randomUUID()}`;
  const { run_id: runId = "" } = await plane.chat(ada, { convId: conv, message: "one" });
  const word = await until("a word", async () =>
    (await eventsOf(log, conv)).find(({ event }) => event.text_delta),
  );
  const posted = plane.post(ada, conv, [text("p1", "By the way")]);
  await appending.promise;
  const [{ org, fence, epoch }] = (await servers.database.query<{
    org: string;
    fence: bigint;
    epoch: string;
  }>({
    text: "SELECT org_id AS org, fence, epoch FROM runtime.conversation_runs WHERE run_id = $1",
    values: [runId],
  })) as [{ org: string; fence: bigint; epoch: string }];
  const run = { org, convId: conv, runId, fence };
  const answer = messagesOf([word]);
  const stored = openMessageStore(servers.database).save(run, answer, { epoch, seq: word.seq, time: 0 });
  await until("the store waits", async () => {
    const waiting = await servers.database.query({
      text: `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    });
    return waiting.length > 0;
  });
  release.resolve();
  await Promise.all([posted, stored]);
  engine.release("one");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  const { live, stored: rows } = await liveAndStored(server, conv);
  expect(live.at(-1)).toEqual([answer[0]!.message_id, "p1"]);
  expect(rows).toEqual(live);
});

test("refuses tool events that nobody could answer or decide, naming the field", async () => {
  await using servers = await Servers.open();
  const { server, conv, end } = await begun(servers);
  const call = { message_id: "p1", tool_call_id: "t", tool: "radar", input: {} };
  for (const [event, field] of [
    [{ tool_call: { ...call, tool_call_id: "" } }, "events[1].tool_call.tool_call_id"],
    [{ tool_call: { ...call, waits_for: "approval" } }, "events[1].tool_call.waits_for"],
    [{ tool_call: { ...call, waits_for: "output" } }, "events[1].tool_call.waits_for"],
    [{ tool_result: { ...call, tool_call_id: "" } }, "events[1].tool_result.tool_call_id"],
  ] satisfies [EventJson, string][]) {
    const posted = server.plane.post(service, conv, [text("p1", "Look"), event]);
    await expect(posted).rejects.toMatchObject({ code: "invalid_request", details: { field } });
  }
  await end();
});

test("a snapshot has a post that is in the log and not committed yet", async () => {
  await using servers = await Servers.open();
  const gates = new Map(["p1", "p2"].map((id) => [id, Promise.withResolvers<void>()]));
  await using _ = {
    async [Symbol.asyncDispose]() {
      for (const { resolve } of gates.values()) resolve();
    },
  };
  const appended = new Set<string>();
  const engine = new GatedEngine();
  const server = await servers.start({
    engine: engine.factory,
    wrapLog: (log) => ({
      ...log,
      async append(stream, entries, options) {
        const bounds = await log.append(stream, entries, options);
        for (const [id, gate] of gates) {
          if (!entries[0]!.includes(`"${id}"`)) continue;
          appended.add(id);
          await gate.promise;
        }
        return bounds;
      },
    }),
  });
  const { plane } = server;
  const conv = `conv-${randomUUID()}`;
  await plane.chat(ada, { convId: conv, message: "one", messageId: "q" });
  await until("the run", () => engine.started.includes("one"));
  engine.release("one");
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  await plane.post(ada, conv, [text("p0", "Before")]);
  const warm = await servers.start({ engine: engine.factory });
  await plane.state(ada, conv);
  const textsAt = async ({ plane }: TestServer) =>
    (await plane.state(ada, conv)).messages
      ?.slice(2)
      .map(({ parts = [] }) => parts.map((part) => part.text).join(""));
  for (const [id, events, texts] of [
    [
      "p1",
      [text("p1", "By the way"), { text_delta: { message_id: "p0", text: " that" } }],
      ["Before that", "By the way"],
    ],
    [
      "p2",
      [{ custom: { name: "p2", data: "p2" } }, { text_delta: { message_id: "p1", text: ", p2" } }],
      ["Before that", "By the way, p2"],
    ],
  ] satisfies [string, EventJson[], string[]][]) {
    const posted = plane.post(ada, conv, events);
    await until("the append", () => appended.has(id));
    // One follows the conversation already, and the other opens it now.
    for (const reader of [server, warm]) expect(await textsAt(reader), id).toEqual(texts);
    gates.get(id)!.resolve();
    await posted;
    for (const reader of [server, warm]) expect(await textsAt(reader), id).toEqual(texts);
  }
});
