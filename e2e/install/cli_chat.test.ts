import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { scripted } from "@khala/server/engines";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

let folder: string;
let store: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-cli-chat-"));
  store = await testDatabase();
  server = await startConversations(store.url, { engine: scripted() });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await store[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const TERMINAL = "process.stdin.isTTY = true";
/** Ctrl-C after the message is sent, and before the server has it. */
const INTERRUPTED = `
  const send = globalThis.fetch;
  globalThis.fetch = (url, request) => {
    if (String(url).endsWith("/chat")) process.emit("SIGINT");
    return send(url, request);
  }`;

/** `khala chat` in a process of its own, after a script that prepares it. */
async function chat(convId: string, prepare: string, message: readonly string[] = [], url = server.url) {
  const command = [
    "--conditions=khala-source",
    `--import=data:text/javascript,${encodeURIComponent(prepare)}`,
    join(ROOT, "packages/cli/src/main.ts"),
  ];
  const env = { KHALA_URL: url, KHALA_TOKEN: await server.token(), KHALA_DATA_DIR: folder };
  const child = spawn(process.execPath, [...command, "chat", "--conv", convId, ...message], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...bareEnv(), ...env },
  });
  const output = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk) => (output.out += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk) => (output.err += chunk));
  const ended = once(child, "exit").then(([code]) => code as number);
  return {
    output,
    ended,
    type: (line: string) => child.stdin.write(`${line}\n`),
    close: () => child.stdin.end(),
    [Symbol.dispose]: () => void child.kill(),
  };
}

test("names a tool call that needs an approval, and goes on after the decision", async () => {
  const convId = newConv();
  using terminal = await chat(convId, "", ["/approve", "pay 5 euros"]);
  await until("the note", () => terminal.output.err.includes("approvals approve"));
  const [, callId] = new RegExp(`approvals approve ${convId}/(\\S+)`).exec(terminal.output.err)!;
  expect(terminal.output.err).toContain('approve {"what":"pay 5 euros"} needs an approval');
  const decision = { method: "POST", body: JSON.stringify({ approve: true }) };
  expect((await server.request(`/chat/${convId}/tools/${callId}`, decision)).status).toBe(200);
  expect(await terminal.ended).toBe(0);
  expect(terminal.output.out).toContain("Done: pay 5 euros");
});

test("Ctrl-C stops the run of a message that the server did not have yet", async () => {
  const convId = newConv();
  using terminal = await chat(convId, INTERRUPTED, [`/slow ${"word ".repeat(200)}`]);
  expect(await terminal.ended).toBe(0);
  expect(terminal.output.err).toContain("# stopped");
  expect((await server.state(convId)).last_run).toMatchObject({ status: "stopped" });
});

test("a chat on a terminal goes on after an answer that failed", async () => {
  using terminal = await chat(newConv(), TERMINAL);
  terminal.type("/fail");
  await until("the failure", () => terminal.output.err.includes("The run failed"));
  terminal.type("hello");
  await until("the answer", () => terminal.output.out.includes("You said: hello"));
  terminal.type("");
  expect(await terminal.ended).toBe(0);
});

test("Ctrl-D during an answer ends the chat after it", async () => {
  using terminal = await chat(newConv(), TERMINAL);
  terminal.type("/slow one two three four");
  await until("the first word", () => terminal.output.out.includes("one"));
  terminal.close();
  expect(await terminal.ended).toBe(0);
  expect(terminal.output.out).toContain("one two three four");
});

test("says at once that no server answers, also with a token of its own", async () => {
  using terminal = await chat(newConv(), "", ["hello"], "http://127.0.0.1:1");
  expect(await terminal.ended).toBe(3);
  expect(terminal.output.err).toContain("No server answers at");
});
