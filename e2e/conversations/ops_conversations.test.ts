import type { ConversationListJson, LogPageJson } from "@khala/contracts/conversation/v1";
import type { OrgConversationListJson } from "@khala/contracts/ops/v1";
import { createKhala, type Khala, readConfig } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";

let database: TestDatabase;
let khala: Khala;
beforeAll(async () => {
  database = await testDatabase();
  const config = readConfig({
    DATABASE_URL: database.url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
  });
  khala = await createKhala({ models: [], engine: scripted() }, { config, dev: true });
});
afterAll(async () => {
  await khala.stop();
  await database[Symbol.asyncDispose]();
});

async function token(sub: string, org_id: string, scopes = ["chat"]): Promise<string> {
  return (await khala.auth.issuer!.mint({ sub, org_id, scopes })).token;
}

async function ask<T>(path: string, bearer: string, body?: object): Promise<{ status: number; body: T }> {
  const response = await fetch(khala.url + path, {
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as T };
}

/** Says something and waits for the record of its run, which lists show and which follows the last event. */
async function say(bearer: string, conv_id: string, message: string): Promise<void> {
  expect((await ask("/chat", bearer, { conv_id, message })).status).toBe(202);
  await eventually("the end of the run", async () => {
    const { body } = await ask<ConversationListJson>("/chat", bearer);
    const { run } = body.conversations?.find((shown) => shown.conv_id === conv_id) ?? {};
    return run?.status === "finished" || run?.status === "failed";
  });
}

const idsOf = ({ conversations = [] }: ConversationListJson) => conversations.map(({ conv_id }) => conv_id);

describe("GET /chat", () => {
  test("lists own conversations, newest first, titled by their first words", async () => {
    const ada = await token("ada", "talkers");
    await say(ada, "first", "How is the weather in Oslo?\nAnd in Bergen?");
    await say(ada, "second", "x".repeat(200));
    await say(ada, "first", "Thank you.");
    const { body } = await ask<ConversationListJson>("/chat", ada);
    expect(body).toMatchObject({
      conversations: [
        { conv_id: "first", title: "How is the weather in Oslo?", run: { status: "finished" } },
        { conv_id: "second", title: `${"x".repeat(79)}…`, updated_at: expect.stringMatching(/Z$/) },
      ],
    });
    expect(body.next).toBeUndefined();
  });

  test("pages without gaps or repetition", async () => {
    const bea = await token("bea", "talkers");
    for (let i = 0; i < 5; i++) await say(bea, `bea-${i}`, "Hello");
    const found: (string | undefined)[] = [];
    let after: string | undefined = "";
    while (after !== undefined) {
      const page: ConversationListJson = (
        await ask<ConversationListJson>(`/chat?limit=2&after=${after}`, bea)
      ).body;
      found.push(...idsOf(page));
      after = page.next;
    }
    expect(found).toEqual(["bea-4", "bea-3", "bea-2", "bea-1", "bea-0"]);
  });

  test("lists no other subject's, and needs the scope", async () => {
    await say(await token("cid", "talkers"), "cids", "Hello");
    await say(await token("ada", "elsewhere"), "other-ada", "Hello");
    expect(idsOf((await ask<ConversationListJson>("/chat", await token("dan", "talkers"))).body)).toEqual([]);
    expect(idsOf((await ask<ConversationListJson>("/chat", await token("cid", "talkers"))).body)).toEqual([
      "cids",
    ]);
    expect((await ask("/chat", await token("ada", "talkers", ["ops"]))).status).toBe(403);
    expect((await ask("/chat?after=nonsense", await token("cid", "talkers"))).status).toBe(400);
  });
});

describe("GET /chat/:conv_id/log", () => {
  test("has every entry as sockets get it, from the first one on", async () => {
    const eve = await token("eve", "talkers");
    await say(eve, "logged", "2+2");
    const whole = (await ask<LogPageJson>("/chat/logged/log", eve)).body;
    expect(whole.next).toBeUndefined();
    expect(whole.events![0]).toMatchObject({
      type: "event",
      seq: "1",
      event: { run_started: { subject: "eve" } },
    });
    expect(whole.events!.at(-1)!.event).toHaveProperty("run_finished");
    expect(whole.events!.map(({ seq }) => Number(seq))).toEqual(whole.events!.map((_, i) => i + 1));

    const parts: LogPageJson["events"] = [];
    let after: string | undefined = "";
    while (after !== undefined) {
      const page: LogPageJson = (await ask<LogPageJson>(`/chat/logged/log?limit=3&after=${after}`, eve)).body;
      parts.push(...page.events!);
      after = page.next;
    }
    expect(parts).toEqual(whole.events);

    const heard = await frames(
      `/ws?conv_id=logged&token=${eve}&after=${whole.events![0]!.cursor}`,
      whole.events!.length - 1,
    );
    expect(heard).toEqual(whole.events!.slice(1));
  });

  test("refuses other subjects, and a cursor of another log as stale", async () => {
    const eve = await token("eve", "talkers");
    await say(eve, "secret", "Hush");
    expect((await ask("/chat/secret/log", await token("ada", "talkers"))).status).toBe(404);
    expect((await ask("/chat/nowhere/log", eve)).status).toBe(404);
    await say(eve, "another", "Hello");
    const { events } = (await ask<LogPageJson>("/chat/another/log?limit=1", eve)).body;
    const answer = await ask<{ error: { code: string } }>(
      `/chat/secret/log?after=${events![0]!.cursor}`,
      eve,
    );
    expect(answer).toMatchObject({ status: 410, body: { error: { code: "stale_cursor" } } });
    expect((await ask("/chat/secret/log?after=nonsense", eve)).status).toBe(400);
  });
});

test("GET /ops/v1/conversations lists the org's, of every subject, with their followers here", async () => {
  const ada = await token("ada", "watched");
  await say(ada, "watched-1", "Something private");
  await say(await token("bob", "watched"), "watched-2", "/fail");
  const socket = new WebSocket(`${khala.url.replace("http", "ws")}/ws?conv_id=watched-1&token=${ada}`);
  const operator = await token("olga", "watched", ["ops"]);
  const { conversations } = await eventually("the socket", async () => {
    const { body } = await ask<OrgConversationListJson>("/ops/v1/conversations", operator);
    return body.conversations!.some(({ sockets }) => sockets === 1) && body;
  });
  expect(conversations).toEqual([
    {
      conv_id: "watched-2",
      subject: "bob",
      updated_at: expect.any(String),
      run_status: "failed",
      sockets: 0,
    },
    {
      conv_id: "watched-1",
      subject: "ada",
      updated_at: expect.any(String),
      run_status: "finished",
      sockets: 1,
    },
  ]);
  expect(JSON.stringify(conversations)).not.toContain("private");
  const other = await token("olga", "elsewhere-else", ["ops"]);
  expect((await ask<OrgConversationListJson>("/ops/v1/conversations", other)).body.conversations).toEqual([]);
  socket.close();
});

/** So many event frames of a socket. */
function frames(path: string, count: number): Promise<unknown[]> {
  const socket = new WebSocket(khala.url.replace("http", "ws") + path);
  const heard: { type?: string }[] = [];
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", (data) => {
      const frame = JSON.parse(String(data)) as { type?: string };
      if (frame.type === "event") heard.push(frame);
      if (heard.length < count) return;
      socket.close();
      resolve(heard);
    });
  });
}
