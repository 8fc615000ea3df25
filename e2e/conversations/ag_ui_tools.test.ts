import { randomUUID } from "node:crypto";
import { type EngineFactory, scripted } from "@khala/server/engines";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";

// What is used of @ag-ui/client 1.0.0.
interface Message {
  readonly id: string;
  readonly role: string;
  readonly content?: unknown;
  readonly toolCallId?: string;
}
interface Resume {
  readonly interruptId: string;
  readonly status: "resolved" | "cancelled";
  readonly payload?: unknown;
}
interface RunParameters {
  readonly runId: string;
  readonly tools?: readonly object[];
  readonly resume?: readonly Resume[];
}
interface HttpAgent {
  readonly messages: readonly Message[];
  readonly pendingInterrupts: readonly { readonly id: string; readonly toolCallId?: string }[];
  addMessage(message: Message): void;
  runAgent(parameters: RunParameters): Promise<unknown>;
  subscribe(subscriber: { onEvent(given: { event: { readonly type: string } }): void }): void;
}
interface AgUi {
  readonly HttpAgent: new (options: {
    url: string;
    threadId: string;
    headers: Record<string, string>;
  }) => HttpAgent;
}

await ensureInstalled("e2e/peers");
const { HttpAgent } = await importPeer<AgUi>("@ag-ui/client");

const executed: string[] = [];

/** Uses the client's first tool, or asks whether it may pay; then says what came of it. */
const engine: EngineFactory = scripted({
  resumable: true,
  *script({ runId, message, tools, resume }) {
    const calls = (resume?.messages ?? []).flatMap(({ parts = [] }) =>
      parts.flatMap(({ tool }) => tool ?? []),
    );
    if (calls.length === 0) {
      yield { text_delta: { text: "Let me see." } };
      if (message.includes("client"))
        yield {
          tool_call: {
            tool_call_id: `${runId}-c`,
            tool: tools[0]!.name!,
            input: { n: 1 },
            waits_for: "output",
          },
        };
      if (message.includes("pay")) {
        yield { tool_call: { tool_call_id: `${runId}-p`, tool: "pay", input: { euros: 5 } } };
        yield { tool_approval_requested: { tool_call_id: `${runId}-p` } };
      }
      return;
    }
    for (const { tool_call_id, tool, decision, output, error } of calls) {
      if (decision?.approved) {
        executed.push(tool_call_id!);
        yield { tool_result: { tool_call_id: tool_call_id!, tool: tool!, output: "paid" } };
      }
      yield { text_delta: { text: `${tool}: ${decision?.approved ?? output ?? error}. ` } };
    }
  },
});

let database: TestDatabase;
let server: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startConversations(database.url, { engine });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const LOCATE = { name: "locate", description: "Where the person is.", parameters: { type: "object" } };

async function openAgent() {
  const threadId = newConv();
  const headers = { authorization: `Bearer ${await server.token()}` };
  const agent = new HttpAgent({ url: `${server.url}/ag-ui`, threadId, headers });
  const ends: object[] = [];
  agent.subscribe({ onEvent: ({ event }) => void (event.type === "RUN_FINISHED" && ends.push(event)) });
  const run = (more: Partial<RunParameters> = {}) =>
    agent.runAgent({ runId: randomUUID(), tools: [LOCATE], ...more });
  return {
    agent,
    threadId,
    ends,
    run,
    ask(content: string) {
      agent.addMessage({ id: randomUUID(), role: "user", content });
      return run();
    },
  };
}

/** What the audit log says of the decisions in a conversation. */
const audited = (convId: string) =>
  database.database.query<{ subject: string; outcome: string }>({
    text: `SELECT subject, outcome FROM runtime.audit_log
      WHERE action = 'tool_call.decide' AND starts_with(resource, $1) ORDER BY id`,
    values: [`/chat/${convId}/tools/`],
  });

const shown = ({ messages }: HttpAgent) => messages.map(({ role, content }) => `${role}: ${content ?? ""}`);

test("the server's engine calls a frontend tool, whose output continues the run", async () => {
  const { agent, threadId, ends, ask, run } = await openAgent();
  await ask("Use the client's tool");
  const { run: waiting } = await server.state(threadId);
  expect(waiting).toMatchObject({ status: "waiting", waits_for: [{ tool: "locate", waits_for: "output" }] });
  const toolCallId = waiting!.waits_for![0]!.tool_call_id!;
  expect(ends[0]).toMatchObject({ outcome: { type: "success", pendingToolCallIds: [toolCallId] } });
  agent.addMessage({ id: randomUUID(), role: "tool", toolCallId, content: '{"city":"Bern"}' });
  await run();
  expect(shown(agent)).toEqual([
    "user: Use the client's tool",
    "assistant: Let me see.",
    'tool: {"city":"Bern"}',
    'assistant: locate: {"city":"Bern"}. ',
  ]);
  expect(await server.settled(threadId)).toBe("finished");
  expect((await server.state(threadId)).last_run!.run_id).toBe(waiting!.run_id);
});

test("an approval is an interrupt, and resume answers it", async () => {
  const { agent, threadId, ends, ask, run } = await openAgent();
  await ask("pay");
  const [interrupt] = agent.pendingInterrupts;
  expect(ends[0]).toMatchObject({
    outcome: { type: "interrupt", interrupts: [{ id: interrupt!.id, reason: "tool_approval" }] },
  });
  await run({ resume: [{ interruptId: interrupt!.id, status: "resolved", payload: { approved: true } }] });
  expect(executed).toContain(interrupt!.toolCallId);
  expect(shown(agent)).toEqual([
    "user: pay",
    "assistant: Let me see.",
    "tool: paid",
    "assistant: pay: true. ",
  ]);
  expect(await server.settled(threadId)).toBe("finished");
  expect(await audited(threadId)).toEqual([{ subject: "user-1", outcome: "ok" }]);
});

test("cancelling an interrupt denies the call", async () => {
  const { agent, ask, run } = await openAgent();
  await ask("pay");
  const [interrupt] = agent.pendingInterrupts;
  await run({ resume: [{ interruptId: interrupt!.id, status: "cancelled" }] });
  expect(executed).not.toContain(interrupt!.toolCallId);
  expect(shown(agent).slice(2)).toEqual([
    'tool: {"error":"The call was denied."}',
    "assistant: pay: false. ",
  ]);
});

test("a run that waits for an approval and a frontend tool continues after both", async () => {
  const { agent, threadId, ask, run } = await openAgent();
  await ask("client and pay");
  const calls = (await server.state(threadId)).run!.waits_for!;
  const toolCallId = calls.find(({ tool }) => tool === "locate")!.tool_call_id!;
  agent.addMessage({ id: randomUUID(), role: "tool", toolCallId, content: "Bern" });
  const [interrupt] = agent.pendingInterrupts;
  await run({ resume: [{ interruptId: interrupt!.id, status: "resolved", payload: true }] });
  const end = ["tool: Bern", "tool: paid", "assistant: locate: Bern. ", "assistant: pay: true. "];
  expect(shown(agent).slice(2)).toEqual(end);
});

test("refuses an invalid answer to a call with its field", async () => {
  const threadId = newConv();
  const send = async (more: object) => {
    const body = { threadId, runId: randomUUID(), messages: [], ...more };
    const response = await server.request("/ag-ui", { method: "POST", body: JSON.stringify(body) });
    return [response.status, ((await response.json()) as { error: { field?: string } }).error.field];
  };
  const user = { id: "u", role: "user", content: "hi" };
  expect(await send({ resume: [{ interruptId: "x", status: "resolved", payload: 1 }] })).toEqual([
    400,
    "resume[0].payload",
  ]);
  expect(await send({ messages: [user, { id: "t", role: "tool", content: "x" }] })).toEqual([
    400,
    "messages[1].toolCallId",
  ]);
  expect(await send({ messages: [user], tools: [{ name: "not a name" }] })).toEqual([400, "tools[0].name"]);
});
