import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv, onStage, openChat, says } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";

const clock = new JumpClock();
let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url, { clock, conversations: { runTimeoutMs: 3_600_000 } });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** Resumes a run by hand, and records what comes. */
async function resume(id: string, token?: string) {
  const authorization = `Bearer ${token ?? (await server.token())}`;
  const request = get(`${server.url}/ai/chat/${id}/stream`, { headers: { authorization } });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  const seen = { text: "", over: "" };
  response.setEncoding("utf8").on("data", (text: string) => {
    seen.text += text;
  });
  response.on("end", () => {
    seen.over = "ended";
  });
  response.on("error", () => {
    seen.over = "cut";
  });
  return seen;
}

test("sends keep-alives during a silent answer", async () => {
  const id = newConv();
  await server.chat(id, "Think");
  const performance = await onStage(server, id);
  performance.say("Hm");
  const seen = await resume(id);
  await until("the first words", () => seen.text.includes("Hm"));
  await until("a sign of life", () => {
    clock.jump(10_000);
    return seen.text.includes(": still here\n\n");
  });
  performance.say("!");
  performance.finish();
  await until("the end", () => seen.over);
  expect(seen.over).toBe("ended");
  expect(seen.text).toMatch(/data: \[DONE\]\n\n$/);
});

test("a token that expired within the clock skew starts a run and gets its answer, but cannot join one", async () => {
  const id = newConv();
  const token = await server.token({ ttl_s: 60 });
  clock.jump(61_000);
  const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Think" }] }];
  const answer = await server.request(
    "/ai/chat",
    { method: "POST", body: JSON.stringify({ id, messages }) },
    token,
  );
  expect(answer.status).toBe(200);
  const performance = await onStage(server, id);
  const joining = await server.request(`/ai/chat/${id}/stream`, {}, token);
  expect(joining.status).toBe(401);
  expect(await joining.text()).toContain("token_expired");
  performance.say("Whole");
  performance.finish();
  expect(await answer.text()).toMatch(/Whole.*data: \[DONE\]\n\n$/s);
});

test("a stream ends with its token, and is resumed with a new one", async () => {
  const id = newConv();
  await server.chat(id, "Think");
  const performance = await onStage(server, id);
  performance.say("Hm");
  const seen = await resume(id, await server.token({ ttl_s: 60 }));
  await until("the first words", () => seen.text.includes("Hm"));
  clock.jump(61_000);
  await until("the end", () => seen.over);
  expect(seen.over).toBe("cut");
  expect(seen.text).not.toContain("finish");
  await using chat = openChat(server, "http", id);
  const resumed = chat.resumeStream();
  await says(chat, "Hm");
  performance.finish();
  await resumed;
  expect(chat.status).toBe("ready");
});
