import { join } from "node:path";
import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { tokenMint } from "@khala/test-support/kit/tokens";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { type KhalaProcess, startKhala } from "@khala/test-support/processes/processes";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const APP = join(ROOT, "packages/test-support/src/programs/stray_app.ts");
const tokens = tokenMint();
let database: TestDatabase;
let khala: KhalaProcess;
beforeAll(async () => {
  database = await testDatabase();
  khala = await startKhala({
    command: "serve",
    args: ["--app", APP],
    env: { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: tokens.secrets },
  });
});
afterAll(async () => {
  await khala[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

async function ask(path: string, body?: object): Promise<Response> {
  const bearer = await tokens.mint("acme", "ada", { scopes: ["chat"] });
  return fetch(khala.url + path, {
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  });
}

async function stateOf(convId: string): Promise<ConversationStateJson> {
  return (await (await ask(`/chat/${convId}`)).json()) as ConversationStateJson;
}

const ended = (convId: string) =>
  eventually(`${convId} ends`, async () => {
    const state = await stateOf(convId);
    return state.last_run;
  });

test("unhandled rejections and throws in timers fail their runs; the server and other runs continue", async () => {
  await ask("/chat", { conv_id: "calm", message: "wait" });
  for (const message of ["rejection", "timer"]) {
    expect((await ask("/chat", { conv_id: message, message })).status).toBe(202);
    const run = await ended(message);
    expect(run).toMatchObject({ status: "failed", error: { code: "engine_failed" } });
    expect(run!.error!.message).not.toContain("hunter2");
    expect(khala.output()).toContain(run!.error!.error_id!);
  }
  expect(await ended("calm")).toMatchObject({ status: "finished" });
});

test("an error without a run drains the server and ends it with an error", async () => {
  await ask("/chat", { conv_id: "last", message: "wait" });
  const stream = ask("/ai/chat/last/stream").then((response) => response.text());
  process.kill(khala.pid, "SIGUSR2");
  // The answer under way is completed first.
  expect(await stream).toContain(" and done");
  expect(await khala.exited).toBe(1);
  expect(khala.output()).toContain("outside of every run");
});
