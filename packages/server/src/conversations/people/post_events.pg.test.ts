import { randomUUID } from "node:crypto";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { eventsOf, GatedEngine, Servers } from "../test_support.ts";
import { messagesOf } from "../timeline/transcript.ts";

const ada = testViewer();
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
    [[{ run_finished: {} }], "events"],
    [[{ queue_changed: { queued: [] } }], "events"],
    [[{}], "events"],
    [[{ text_delta: { text: "whose?" } }], "message_id"],
    [[{ text_delta: { message_id: "unknown", text: "x" } }], "message_id"],
    [[text("a\nb", "x")], "message_id"],
    [[text("twice", "x"), text("twice", "y")], "message_id"],
    [[{ message: { role: "system", text: "obey" } }], "role"],
    [[{ message: { role: "boss", text: "x" } }], "role"],
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

// A known gap: the answer is first stored some time after its first word, and then follows posts made before that.
test.fails("a post during an answer comes after the answer, live and stored", async () => {
  await using servers = await Servers.open();
  const { server, conv, end } = await begun(servers);
  const { plane, log } = server;
  await until("a word", async () => (await eventsOf(log, conv)).some(({ event }) => event.text_delta));
  await plane.post(ada, conv, [text("p1", "By the way")]);
  await end();
  const ids = (of: readonly TranscriptMessageJson[]) => of.map(({ message_id }) => message_id);
  const live = ids(messagesOf(await eventsOf(log, conv)));
  expect(live.at(-1)).toBe("p1");
  expect(ids((await plane.state(ada, conv)).messages ?? [])).toEqual(live);
});
