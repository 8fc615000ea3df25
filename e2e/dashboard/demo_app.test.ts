import { randomUUID } from "node:crypto";
import type { ArtifactListJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import type { TraceJson, TraceListJson } from "@khala/contracts/ops/v1";
import { createKhala, type Khala, readConfig } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startActivity } from "../../packages/cli/src/demo/activity.ts";
import app from "../../packages/cli/src/demo/app.ts";
import { topicOf } from "../../packages/cli/src/demo/assistant.ts";

let database: TestDatabase;
let khala: Khala;
let token: string;
beforeAll(async () => {
  database = await testDatabase();
  const config = readConfig({
    DATABASE_URL: database.url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
  });
  khala = await createKhala(app, { config, dev: true });
  const scopes = ["chat", "ops", "platform", "blackboard:read"];
  ({ token } = await khala.auth.issuer!.mint({ sub: "dev", org_id: "demo", scopes }));
});
afterAll(async () => {
  await khala.stop();
  await database[Symbol.asyncDispose]();
});

async function ask<T>(path: string, body?: object): Promise<T> {
  const response = await fetch(khala.url + path, {
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  });
  return (await response.json()) as T;
}

/** Says something, and waits for the whole answer. */
async function talk(
  conv_id: string,
  message: string,
): Promise<{ runId: string; state: ConversationStateJson }> {
  const { run_id } = await ask<{ run_id: string }>("/chat", { conv_id, message });
  const state = await eventually("the answer", async () => {
    const now = await ask<ConversationStateJson>(`/chat/${conv_id}`);
    return !now.run && now;
  });
  return { runId: run_id, state };
}

test("a message to the assistant becomes an article, in one trace to the last agent", async () => {
  const { runId, state } = await talk("writing", "Please write a note about sea otters.");
  const parts = state.messages!.at(-1)!.parts!;
  expect(parts.map((part) => Object.keys(part)[0])).toEqual(["reasoning", "tool", "custom", "text"]);
  expect(parts[1]!.tool).toMatchObject({
    tool: "publish",
    input: { type: "Topic", payload: { topic: "Sea otters" } },
    output: { artifact_id: expect.any(String), status: "published", correlation_id: runId },
  });
  expect(parts[3]!.text).toContain("“Sea otters” is on the blackboard.");

  const path = `/blackboard/v1/artifacts?correlation_id=${runId}`;
  const { artifacts } = await eventually("the article", async () => {
    const list = await ask<ArtifactListJson>(path);
    return list.artifacts!.some(({ type }) => type === "Article") && list;
  });
  const types = artifacts!.map(({ type }) => type);
  expect(types).toEqual(expect.arrayContaining(["Topic", "Draft", "Review", "Article"]));
  await eventually("the end of the correlation", async () => {
    const { open } = await ask<CorrelationStateJson>(`/blackboard/v1/correlations/${runId}`);
    return open === "0";
  });

  const { traces } = await ask<TraceListJson>(`/ops/v1/traces?correlation_id=${runId}`);
  expect(traces).toHaveLength(1);
  const { spans } = await ask<TraceJson>(`/ops/v1/traces/${traces![0]!.trace_id}`);
  const names = spans!.map(({ name }) => name!);
  expect(names[0]).toBe("POST /chat");
  expect(traces![0]!.name).toMatch(/^Conversation writing · Topic → /);
  const agents = spans!.flatMap(
    ({ attributes }) => (attributes?.["khala.agent"] as string | undefined) ?? [],
  );
  expect(new Set(agents)).toEqual(new Set(["writer", "reviewer", "illustrator", "publisher"]));
  for (const step of [/^invoke_agent$/, /^publish /, /^route /, /^process /, /^settle /, /^project /])
    expect(
      names.some((name) => step.test(name)),
      String(step),
    ).toBe(true);
  const ids = new Set(spans!.map(({ span_id }) => span_id));
  const roots = spans!.filter(({ parent_id }) => parent_id === undefined || !ids.has(parent_id));
  expect(roots.map(({ name }) => name)).toEqual(["POST /chat"]);
});

test("the demo still has the features that the docs of engines list", async () => {
  const weather = await talk("weather", "How is the weather in Oslo?");
  expect(weather.state.messages!.at(-1)!.parts!.some(({ tool }) => tool?.tool === "weather")).toBe(true);
  const long = await talk("long", "/long 50");
  expect(long.state.messages!.at(-1)!.parts!.at(-1)!.text).toMatch(/^1 2 3 .* 50$/);
});

test("takes the topic from the message", () => {
  expect(topicOf("Write a note about sea otters.")).toBe("Sea otters");
  expect(topicOf("Something on  the\nhistory of tea?!")).toBe("The history of tea");
  expect(topicOf("otters")).toBe("Otters");
  expect(topicOf("?")).toBe("");
  expect(Array.from(topicOf("🦦".repeat(200)))).toHaveLength(80);
});

test("the demo produces work while somebody watches, and pauses otherwise", async () => {
  let moments = 0;
  let asked = 0;
  let watching = false;
  const stop = startActivity(
    {
      authority: { ...khala.authority, append: async () => BigInt(++moments) },
      blackboard: khala.blackboard,
      watched() {
        asked++;
        return watching;
      },
    },
    {
      everyMs: 1,
      newId: randomUUID,
      onError(error) {
        throw error;
      },
    },
  );
  await eventually("that nobody was found to watch", () => asked > 20);
  const told = moments;
  expect(told).toBeGreaterThan(5);
  const before = asked;
  await eventually("that nobody was found again", () => asked > before + 20);
  expect(moments).toBe(told);
  watching = true;
  await eventually("that it goes on", () => moments > told + 10);
  await stop();
});
