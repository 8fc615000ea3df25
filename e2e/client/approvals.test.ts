import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createClient, type KhalaClient } from "@khala/client";
import type { WaitingApprovalJson } from "@khala/contracts/conversation/v1";
import { agent } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const signed: unknown[] = [];
const agents = [
  agent("signer", {
    consumes: "Contract",
    approval: true,
    run: ({ artifact }) => void signed.push(artifact.payload),
  }),
  agent("keeper", { consumes: "Secret", approval: true, run() {} }),
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

afterEach(() => {
  vi.restoreAllMocks();
});

const clientOf = (sub: string, scopes = SCOPES, org_id = "org-1") =>
  createClient({ url: server.url, token: () => server.token({ sub, scopes, org_id }) });

const LIVE = [...SCOPES, "approvals"];
/** The ids that a client shows. */
const shownBy = ({ approvals }: KhalaClient) => approvals.state().approvals?.map(({ id }) => id!) ?? [];
/** The ids of the documents that a client has of the topic; undefined before it is live. */
function documentsOf({ sync }: KhalaClient): string[] | undefined {
  const { phase, items } = sync.list("approvals");
  return phase === "live" ? items.map(({ data }) => data.id!) : undefined;
}
/** Follows the inbox, and resolves when it is live. */
async function follow(khala: KhalaClient): Promise<() => void> {
  const stop = khala.approvals.subscribe(() => {});
  await eventually("the topic is live", () => documentsOf(khala) !== undefined);
  return stop;
}
/** The documents of the topic that a token may read: the conversations of tool calls, and the ids of tasks. */
async function listedFor(sub: string, org_id = "org-1", scopes = LIVE): Promise<string[]> {
  const token = await server.token({ sub, scopes, org_id });
  const page = await (await server.request("/sync/v1/list/approvals", token)).json();
  const { documents } = page as { documents: { payload: WaitingApprovalJson }[] };
  return documents.map(({ payload: { id = "", conv_id = id } }) => conv_id).sort();
}

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
  const token = await server.token({ sub: "ada", scopes: SCOPES });
  await eventually("the tool has its output", async () => {
    const state = await (await server.request("/chat/c1", token)).text();
    return state.includes('"output":{"done":"the order"}');
  });
  await expect(khala.approvals.decide(ofChat, { approved: false })).rejects.toMatchObject({
    code: "already_decided",
  });
  await Promise.all([khala, bob, chatOnly].map((client) => client.close()));
});

test("a second device follows the inbox: it reads it when something changes, and does not poll", async () => {
  const [first, second] = [clientOf("dan"), clientOf("dan", LIVE)];
  const requests = vi.spyOn(globalThis, "fetch");
  const reads = () => requests.mock.calls.filter(([url]) => String(url).endsWith("/approvals")).length;
  const stop = await follow(second);
  await eventually("the second has read it", () => second.approvals.state().approvals !== undefined);
  await first.conversation("d1").send("/approve the order");
  await first.board.publish({ type: "Contract", payload: { of: "d1" } });
  await eventually("the second shows both", () => shownBy(second).length === 2);
  await eventually("it has both documents", () => documentsOf(second)?.length === 2);
  const pending = second.approvals.state().approvals!;
  expect(pending.map(({ id }) => id).sort()).toEqual([...documentsOf(second)!].sort());
  for (const approval of pending) await first.approvals.decide(approval, { approved: true });
  await eventually("the second shows none", () => shownBy(second).length === 0);
  await eventually("it has no document", () => documentsOf(second)?.length === 0);
  // At most one when it subscribed, one when the topic was live, and one per change, of which there were four.
  expect(reads()).toBeLessThanOrEqual(6);
  stop();
  // Without the topic: once, and on demand.
  const before = reads();
  const seen = vi.fn();
  const stopFirst = first.approvals.subscribe(seen);
  await eventually("the topic is refused", () => first.sync.list("approvals").phase === "forbidden");
  await eventually("the first has read it", () => seen.mock.calls.length > 0);
  expect(shownBy(first)).toEqual([]);
  expect(reads()).toBe(before + 1);
  await first.approvals.refresh();
  expect(reads()).toBe(before + 2);
  stopFirst();
  await Promise.all([first.close(), second.close()]);
});

test("a document reaches only those who take part, or who may read the artifact", async () => {
  const khala = clientOf("fay", LIVE);
  await khala.conversation("f1").send("/approve the order");
  const secret = { type: "Secret", payload: 1, visibility: { kind: "private", agents: ["keeper"] } };
  const { id } = await khala.board.publish(secret);
  const task = await eventually("the task waits", async () =>
    (await khala.approvals.list()).find(({ task }) => task?.artifacts?.[0]?.id === id),
  );
  await eventually("the owner has both", async () => (await listedFor("fay")).length === 2);
  expect(await listedFor("fay")).toEqual([task.id, "f1"].sort());
  expect(await listedFor("gus")).toEqual([]);
  expect(await listedFor("gus", "org-1", [...LIVE, "chat:service"])).toEqual([]);
  expect(await listedFor("fay", "org-2")).toEqual([]);
  // Who joins sees what waits, and who leaves does not any more.
  const token = await server.token({ sub: "fay", scopes: LIVE });
  const gus = clientOf("gus", LIVE);
  const stop = await follow(gus);
  expect(documentsOf(gus)).toEqual([]);
  const participant = (method: string, body?: string) =>
    server.request("/chat/f1/participants/gus", token, {
      method,
      ...(body && { body, headers: { "content-type": "application/json" } }),
    });
  expect((await participant("PUT", '{"role":"viewer"}')).status).toBe(200);
  await eventually("gus sees the call", () => documentsOf(gus)?.length === 1);
  expect(await listedFor("gus")).toEqual(["f1"]);
  expect((await participant("DELETE")).status).toBe(200);
  await eventually("gus does not any more", () => documentsOf(gus)?.length === 0);
  // A conversation that is deleted takes its calls with it.
  expect((await server.request("/chat/f1", token, { method: "DELETE" })).status).toBeLessThan(300);
  await eventually("the call is gone", async () => !(await listedFor("fay")).includes("f1"));
  expect(await listedFor("fay")).toEqual([task.id]);
  await khala.approvals.decide(task, { approved: false });
  await eventually("nothing is left", async () => (await listedFor("fay")).length === 0);
  stop();
  await Promise.all([khala.close(), gus.close()]);
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
  expect(await run("deny", first!.id!)).toContain("already_decided");
  await khala.close();
});
