import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createClient, type KhalaClient } from "@khala/client";
import { agent } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const signed: unknown[] = [];
const agents = [
  agent("signer", {
    consumes: "Contract",
    approval: true,
    run: ({ artifact }) => void signed.push(artifact.payload),
  }),
];

let database: TestDatabase;
let server: TestServer;
const SCOPES = ["chat", "blackboard:read", "blackboard:write"];
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    agents,
    engine: scripted(),
    settings: { KHALA_BOARD_POLL_MS: "50" },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const clientOf = (sub: string, scopes = SCOPES) =>
  createClient({ url: server.url, token: () => server.token({ sub, scopes }) });

/** Lets a tool call and a task wait, and resolves with the inbox that has both. */
async function bothWait(khala: KhalaClient, convId: string) {
  await khala.conversation(convId).send("/approve the order");
  await khala.board.publish({ type: "Contract", payload: { of: convId } });
  return eventually("both wait", async () => {
    const found = await khala.approvals.list();
    return found.length === 2 ? found : undefined;
  });
}

test("one inbox lists the approvals of conversations and the board, and decides both", async () => {
  const khala = clientOf("ada");
  const inbox = await bothWait(khala, "c1");
  const ofChat = inbox.find(({ kind }) => kind === "chat")!;
  const ofBoard = inbox.find(({ kind }) => kind === "board")!;
  expect(ofChat).toMatchObject({ conv_id: "c1", tool: "approve", input: { what: "the order" } });
  expect(ofChat.id).toBe(`c1/${ofChat.tool_call_id}`);
  expect(ofBoard).toMatchObject({ task: { agent: "signer", artifacts: [{ payload: { of: "c1" } }] } });
  // Somebody else sees what is on the board alone, and a token without its scope sees nothing of it.
  const bob = clientOf("bob");
  expect((await bob.approvals.list()).map(({ kind }) => kind)).toEqual(["board"]);
  const chatOnly = clientOf("ada", ["chat"]);
  expect((await chatOnly.approvals.list()).map(({ kind }) => kind)).toEqual(["chat"]);
  await khala.approvals.decide(ofChat, { approved: true, reason: "Fine" });
  await khala.approvals.decide(ofBoard, { approved: true });
  await eventually("nothing waits", async () => (await khala.approvals.list()).length === 0);
  await eventually("the task is done", () => signed.length === 1);
  const state = await server.request("/chat/c1", await server.token({ sub: "ada", scopes: SCOPES }));
  expect(JSON.stringify(await state.json())).toContain('"output":{"done":"the order"}');
  await expect(khala.approvals.decide(ofChat, { approved: false })).rejects.toMatchObject({
    code: "already_decided",
  });
  await Promise.all([khala, bob, chatOnly].map((client) => client.close()));
});

test("khala approvals lists and decides both", async () => {
  const khala = clientOf("cid");
  const inbox = await bothWait(khala, "c2");
  const env = {
    ...bareEnv(),
    KHALA_URL: server.url,
    KHALA_TOKEN: await server.token({ sub: "cid", scopes: SCOPES }),
  };
  async function run(...args: string[]): Promise<string> {
    const command = [
      "--conditions=khala-source",
      join(ROOT, "packages/cli/src/main.ts"),
      "approvals",
      ...args,
    ];
    const child = spawn(process.execPath, command, { env });
    let text = "";
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (chunk) => (text += chunk));
    await once(child, "close");
    return text;
  }
  const listed = await run();
  for (const { id } of inbox) expect(listed).toContain(id);
  const [first, second] = inbox;
  expect(await run("approve", first!.id!)).toBe(`${first!.id} is approved.\n`);
  expect(await run("deny", second!.id!, "--reason", "Too much", "--json")).toBe(
    `${JSON.stringify({ id: second!.id, approved: false })}\n`,
  );
  expect(await run()).toBe("No pending approvals.\n");
  expect(await run("deny", first!.id!)).toContain(first!.kind === "chat" ? "already_decided" : "conflict");
  await khala.close();
});
