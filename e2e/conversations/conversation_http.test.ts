import { until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

let conversations = 0;
const newConv = () => `conv-${++conversations}`;

function post(body: unknown, headers: Record<string, string> = {}, token?: string): Promise<Response> {
  return server.request("/chat", { method: "POST", body: JSON.stringify(body), headers }, token);
}

const codeOf = async (response: Response) => {
  const { error } = (await response.json()) as { error: { code: string; field?: string } };
  return { status: response.status, code: error.code, ...(error.field && { field: error.field }) };
};

describe("POST /chat", () => {
  test("answers 202 with the run and the cursor before it, once the run is durable", async () => {
    const convId = newConv();
    const response = await post({ conv_id: convId, message: "hello" });
    expect(response.status).toBe(202);
    const body = (await response.json()) as { conv_id: string; run_id: string; cursor: string };
    expect(body).toEqual({
      conv_id: convId,
      run_id: expect.any(String),
      message_id: expect.any(String),
      cursor: expect.any(String),
    });
    await using client = await server.connect(convId, { after: body.cursor });
    const performance = await server.engine.turn(body.run_id);
    performance.say("hi");
    performance.finish();
    await client.runEnded(body.run_id);
    expect([...client.view.texts.values()]).toEqual(["hello", "hi"]);
  });

  test.each([
    ["in the body", { idempotency_key: "key" }, {}],
    ["in the header", {}, { "idempotency-key": "key" }],
  ])("the same key %s gets the same answer and starts one run", async (_, more, headers) => {
    const convId = newConv();
    const send = () => post({ conv_id: convId, message: "once", ...more }, headers);
    const answers = [];
    for (const response of [...(await Promise.all([send(), send()])), await send()]) {
      expect(response.status).toBe(202);
      answers.push(await response.json());
    }
    expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
    const performance = await server.engine.turn((answers[0] as { run_id: string }).run_id);
    performance.finish();
    expect(await server.settled(convId)).toBe("finished");
    expect(server.engine.turnCount(convId)).toBe(1);
  });

  test("during a run, a message is rejected, queued, or interrupts it", async () => {
    const convId = newConv();
    const first = await server.chat(convId, "one");
    const one = await server.engine.turn(first.run_id);
    expect(await codeOf(await post({ conv_id: convId, message: "two" }))).toEqual({
      status: 409,
      code: "conversation_busy",
    });
    const queued = await server.chat(convId, "two", { policy: "queue" });
    one.finish();
    const two = await server.engine.turn(queued.run_id);
    const interrupting = await server.chat(convId, "three", { policy: "interrupt" });
    const three = await server.engine.turn(interrupting.run_id);
    expect(two.signal.aborted).toBe(true);
    three.finish();
    expect(await server.settled(convId)).toBe("finished");
  });

  test.each([
    ["no conv_id", { message: "m" }, "conv_id"],
    ["a conv_id with a slash", { conv_id: "a/b", message: "m" }, "conv_id"],
    ["a conv_id that is no text", { conv_id: 7, message: "m" }, "conv_id"],
    ["no message", { conv_id: "a" }, "message"],
    ["an empty message", { conv_id: "a", message: "" }, "message"],
    ["a message with a NUL", { conv_id: "a", message: "a\0b" }, "message"],
    ["a policy that does not exist", { conv_id: "a", message: "m", policy: "wait" }, "policy"],
    ["an empty key", { conv_id: "a", message: "m", idempotency_key: "" }, "idempotency_key"],
    [
      "a key that is too long",
      { conv_id: "a", message: "m", idempotency_key: "k".repeat(256) },
      "idempotency_key",
    ],
    ["a field that does not exist", { conv_id: "a", message: "m", colour: "red" }, "colour"],
  ])("%s is a 400 that names the field", async (_, body, field) => {
    expect(await codeOf(await post(body))).toEqual({ status: 400, code: "invalid_request", field });
  });

  test("refuses two different keys", async () => {
    const response = await post(
      { conv_id: "a", message: "m", idempotency_key: "x" },
      { "idempotency-key": "y" },
    );
    expect(await codeOf(response)).toEqual({
      status: 400,
      code: "invalid_request",
      field: "idempotency_key",
    });
  });
});

describe("GET, stop and DELETE /chat/:conv_id", () => {
  test("GET returns the messages, the run, and their cursor", async () => {
    const convId = newConv();
    const { run_id } = await server.chat(convId, "hello");
    const performance = await server.engine.turn(run_id);
    performance.say("hal");
    const half = await until("half of it", async () => {
      const state = await server.state(convId);
      return state.messages?.length === 2 && state;
    });
    expect(half).toMatchObject({
      conv_id: convId,
      run: { run_id, status: "running" },
      messages: [
        { role: "user", parts: [{ text: "hello" }] },
        { role: "assistant", run_id, parts: [{ text: "hal" }], status: "streaming" },
      ],
    });
    await using client = await server.connect(convId, { after: half.cursor! });
    performance.say("lo");
    performance.finish();
    await client.runEnded(run_id);
    expect([...client.view.texts.values()]).toEqual(["lo"]);
    expect(client.view.wrong).toEqual([]);
  });

  test("stop names the run it stopped, and reports when nothing ran", async () => {
    const convId = newConv();
    const { run_id } = await server.chat(convId, "hello");
    const performance = await server.engine.turn(run_id);
    const stop = async () => (await server.request(`/chat/${convId}/stop`, { method: "POST" })).json();
    expect(await stop()).toMatchObject({ run_id, stopped: true });
    expect(await server.settled(convId)).toBe("stopped");
    expect(performance.signal.aborted).toBe(true);
    expect(await stop()).toMatchObject({ stopped: false });
  });

  test("DELETE removes the conversation, and the next message starts a new one", async () => {
    const convId = newConv();
    const { run_id } = await server.chat(convId, "hello");
    (await server.engine.turn(run_id)).finish();
    expect(await server.settled(convId)).toBe("finished");
    const response = await server.request(`/chat/${convId}`, { method: "DELETE" });
    expect([response.status, await response.text()]).toEqual([204, ""]);
    expect(await codeOf(await server.request(`/chat/${convId}`))).toEqual({ status: 404, code: "not_found" });
    const again = await server.chat(convId, "again");
    (await server.engine.turn(again.run_id)).finish();
    expect(await server.settled(convId)).toBe("finished");
    const state = await server.state(convId);
    expect(state.messages).toMatchObject([{ parts: [{ text: "again" }] }]);
  });

  test.each(["GET", "DELETE"])("%s of an invalid conv_id is a 400 that names it", async (method) => {
    expect(await codeOf(await server.request("/chat/-a", { method }))).toEqual({
      status: 400,
      code: "invalid_request",
      field: "conv_id",
    });
  });
});

describe("access", () => {
  test("another subject's conversation looks missing, and another org has its own under the id", async () => {
    const convId = newConv();
    const { run_id } = await server.chat(convId, "mine");
    const performance = await server.engine.turn(run_id);
    const theirs = { conv_id: convId, message: "theirs", policy: "interrupt" };
    const stranger = await server.token({ sub: "somebody-else" });
    expect(await codeOf(await post(theirs, {}, stranger))).toEqual({ status: 404, code: "not_found" });
    const tenant = await server.token({ org_id: "another-org" });
    for (const token of [stranger, tenant]) {
      const answers = await Promise.all([
        server.request(`/chat/${convId}`, {}, token),
        server.request(`/chat/${convId}/stop`, { method: "POST" }, token),
        server.request(`/chat/${convId}`, { method: "DELETE" }, token),
      ]);
      for (const answer of answers) expect(await codeOf(answer)).toEqual({ status: 404, code: "not_found" });
    }
    const accepted = await post(theirs, {}, tenant);
    expect(accepted.status).toBe(202);
    const { run_id: other } = (await accepted.json()) as { run_id: string };
    (await server.engine.turn(other)).finish();
    const seen = await (await server.request(`/chat/${convId}`, {}, tenant)).text();
    expect(seen).toContain("theirs");
    expect(seen).not.toContain("mine");
    expect((await server.request(`/chat/${convId}`, { method: "DELETE" }, tenant)).status).toBe(204);
    expect(performance.signal.aborted).toBe(false);
    performance.finish();
    expect(JSON.stringify(await server.state(convId))).not.toContain("theirs");
  });

  test("refuses everything without the scope, and without a token", async () => {
    const token = await server.token({ scopes: ["runtime:write"] });
    for (const [path, method] of [
      ["/chat/a", "GET"],
      ["/chat/a", "DELETE"],
      ["/chat/a/stop", "POST"],
    ] as const) {
      expect(await codeOf(await server.request(path, { method }, token))).toEqual({
        status: 403,
        code: "missing_scope",
      });
      expect((await fetch(server.url + path, { method })).status).toBe(401);
    }
    expect((await post({ conv_id: "a", message: "m" }, {}, token)).status).toBe(403);
  });

  test("GET /ws without an upgrade explains what to do", async () => {
    expect(await codeOf(await server.request("/ws?conv_id=a"))).toEqual({
      status: 426,
      code: "upgrade_required",
    });
  });
});
