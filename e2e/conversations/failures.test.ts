import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import type { FailedRunListJson } from "@khala/contracts/ops/v1";
import { createKhala, type Khala, PublicError, readConfig, runSummaries } from "@khala/server";
import { aiSdk, type EngineFactory } from "@khala/server/engines";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { jsonSchema, tool } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

const SECRETS = ["password=hunter2", "sk-proj-abc123", "redis://default:pw@10.0.0.7:6379"];
const LEAK = /hunter2|sk-proj|redis:|10\.0\.0\.7|connect failed|the tool's/;

/** The secret that a message such as "secret 1" names: what fails knows it, the user does not. */
const secretOf = (message: string) => SECRETS[Number(/\d/.exec(message))]!;

const throwing: EngineFactory = () => ({
  async *run({ message }) {
    yield { text_delta: { text: "So " } };
    if (message === "public") throw new PublicError("Your plan has no answers left.", { code: "refused" });
    throw new Error(`connect failed: ${secretOf(message)}`, { cause: new TypeError(secretOf(message)) });
  },
});

type StreamResult = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>;
type StreamPart = StreamResult["stream"] extends ReadableStream<infer P> ? P : never;

const finish = (unified: "stop" | "tool-calls"): StreamPart => ({
  type: "finish",
  finishReason: { unified, raw: undefined },
  usage: {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  },
});

/** A model that calls a tool, which throws. */
const withTool: EngineFactory = (conversation) => {
  const steps: StreamPart[][] = [
    [{ type: "tool-call", toolCallId: "t1", toolName: "look", input: "{}" }, finish("tool-calls")],
    [
      { type: "text-start", id: "1" },
      { type: "text-delta", id: "1", delta: "Done." },
      { type: "text-end", id: "1" },
      finish("stop"),
    ],
  ];
  const model = new MockLanguageModelV4({
    doStream: async () => ({ stream: convertArrayToReadableStream(steps.shift()!) }),
  });
  const look = tool({
    inputSchema: jsonSchema<object>({ type: "object" }),
    execute: async (): Promise<string> => {
      throw new Error(`the tool's ${secretOf(conversation.convId)}`);
    },
  });
  return aiSdk(model, { tools: { look } })(conversation);
};

let database: TestDatabase;
let khala: Khala;
const logged: string[] = [];
beforeAll(async () => {
  database = await testDatabase();
  const config = readConfig({
    DATABASE_URL: database.url,
    KHALA_PORT: "0",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
  });
  const log = pino({ level: "warn" }, { write: (line: string) => void logged.push(line) });
  const engine: EngineFactory = (conversation) =>
    (conversation.convId.startsWith("tool") ? withTool : throwing)(conversation);
  khala = await createKhala({ models: [runSummaries], engine }, { config, log, dev: true });
});
afterAll(async () => {
  await khala.stop();
  await database[Symbol.asyncDispose]();
});

async function token(scopes = ["chat", "runtime.run_summaries", "runtime:write", "runtime:read"]) {
  return (await khala.auth.issuer!.mint({ sub: "ada", org_id: "acme", scopes })).token;
}

async function ask(path: string, bearer: string, body?: object): Promise<string> {
  const response = await fetch(khala.url + path, {
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  });
  return response.text();
}

/** The frames of `/ws` up to the end of a run. */
function framesOf(convId: string, bearer: string, after: string): Promise<string> {
  const query = new URLSearchParams({ conv_id: convId, token: bearer, after });
  const socket = new WebSocket(`${khala.url.replace("http", "ws")}/ws?${query}`);
  let heard = "";
  return new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", (data) => {
      heard += data;
      if (!/run_(failed|finished)/.test(heard)) return;
      socket.close();
      resolve(heard);
    });
  });
}

/** Whatever end users can read of a conversation whose engine or tool fails with a secret. */
async function doors(kind: string, secret: string): Promise<string[]> {
  const bearer = await token();
  const said = [];
  const message = `secret ${SECRETS.indexOf(secret)}`;
  const id = (door: string) => `${kind}-${door}-${SECRETS.indexOf(secret)}`;
  const ai = {
    id: id("ai"),
    messages: [{ id: "m1", role: "user", parts: [{ type: "text", text: message }] }],
  };
  said.push(await ask("/ai/chat", bearer, ai));
  const agUi = { threadId: id("ag"), runId: "r1", messages: [{ id: "m1", role: "user", content: message }] };
  said.push(await ask("/ag-ui", bearer, agUi));
  const { run_id, cursor } = JSON.parse(await ask("/chat", bearer, { conv_id: id("ws"), message }));
  said.push(await framesOf(id("ws"), bearer, cursor));
  said.push(
    await eventually("the end", async () => {
      const text = await ask(`/chat/${id("ws")}`, bearer);
      return (JSON.parse(text) as ConversationStateJson).last_run && text;
    }),
  );
  said.push(await ask(`/chat/${id("ws")}/log`, bearer), await ask("/chat", bearer));
  said.push(
    await eventually("the document", async () => {
      const text = await ask(`/sync/v1/doc/run:${run_id}`, bearer);
      return /"status":"(failed|completed)"/.test(text) && text;
    }),
  );
  said.push(await ask(`/runtime/runs/${run_id}/events`, bearer));
  return said;
}

test.each(SECRETS)("no endpoint shows an exception with %s, and its error id finds it", async (secret) => {
  const said = await doors("engine", secret);
  for (const text of said) expect(text).not.toMatch(LEAK);
  for (const text of said.slice(0, 4)) expect(text).toMatch(/could not be completed \(error [0-9a-f-]{36}\)/);
  const { last_run: run } = JSON.parse(said[3]!) as ConversationStateJson;
  expect(run).toMatchObject({ status: "failed", error: { code: "engine_failed" } });
  const { error_id } = run!.error!;
  expect(logged.some((line) => line.includes(error_id!) && line.includes(`connect failed: ${secret}`))).toBe(
    true,
  );
  const found = await ask(`/ops/v1/failed-runs?error_id=${error_id}`, await token(["ops"]));
  const { runs = [] } = JSON.parse(found) as FailedRunListJson;
  expect(runs).toHaveLength(1);
  expect(runs[0]!.detail).toContain(`connect failed: ${secret}`);
});

test.each(SECRETS)("no endpoint shows a tool's exception with %s", async (secret) => {
  const said = await doors("tool", secret);
  for (const text of said) expect(text).not.toMatch(LEAK);
  for (const text of said.slice(0, 4)) expect(text).toMatch(/The tool failed \(error [0-9a-f-]{36}\)/);
  expect(logged.some((line) => line.includes("a tool failed") && line.includes(`the tool's ${secret}`))).toBe(
    true,
  );
});

test("every endpoint shows a PublicError unchanged", async () => {
  const bearer = await token();
  const part = { type: "text", text: "public" };
  const ai = await ask("/ai/chat", bearer, {
    id: "p1",
    messages: [{ id: "m", role: "user", parts: [part] }],
  });
  expect(ai).toContain('"errorText":"Your plan has no answers left."');
  const agUi = await ask("/ag-ui", bearer, {
    threadId: "p2",
    runId: "r",
    messages: [{ id: "m", role: "user", content: "public" }],
  });
  expect(agUi).toContain('"message":"Your plan has no answers left.","code":"refused"');
});
