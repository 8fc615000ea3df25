import { aiSdk } from "@khala/server/engines";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import {
  type AiChat,
  newConv,
  openChat,
  says,
  settled,
  TRANSPORTS,
  type TransportName,
  textOf,
} from "@khala/test-support/servers/ai_chat";
import { type ConversationServer, startConversations } from "@khala/test-support/servers/conversations";
import {
  jsonSchema,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  tool,
  type UIMessage,
} from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

const paid: number[] = [];
beforeEach(() => {
  paid.length = 0;
});

const tools = {
  pay: tool({
    inputSchema: jsonSchema<{ euros: number }>({ type: "object", properties: { euros: { type: "number" } } }),
    needsApproval: true,
    execute({ euros }) {
      paid.push(euros);
      return { paid: euros };
    },
  }),
  locate: tool({
    inputSchema: jsonSchema<object>({ type: "object" }),
    outputSchema: jsonSchema<{ city: string }>({ type: "object" }),
  }),
};

/** Uses the tools that the message names; then it says what they gave. */
const model = () =>
  new MockLanguageModelV4({
    async doStream({ prompt }) {
      const last = prompt.at(-1)!;
      const usage = {
        inputTokens: { total: 1, noCache: 1, cacheRead: undefined, cacheWrite: undefined },
        outputTokens: { total: 1, text: 1, reasoning: undefined },
      };
      const text = (delta: string) => [
        { type: "text-start" as const, id: "t" },
        { type: "text-delta" as const, id: "t", delta },
        { type: "text-end" as const, id: "t" },
      ];
      if (last.role === "tool") {
        const outputs = last.content.map((part) => (part.type === "tool-result" ? part.output : part));
        const stream = convertArrayToReadableStream([
          ...text(JSON.stringify(outputs)),
          { type: "finish" as const, finishReason: { unified: "stop" as const, raw: undefined }, usage },
        ]);
        return { stream };
      }
      const asked = JSON.stringify(last.content);
      const names = ["pay", "locate"].filter((name) => asked.includes(name));
      const stream = convertArrayToReadableStream([
        ...text("Let me see."),
        ...names.map((toolName) => ({
          type: "tool-call" as const,
          toolCallId: `${toolName}-${crypto.randomUUID()}`,
          toolName,
          input: toolName === "pay" ? '{"euros":5}' : "{}",
        })),
        { type: "finish" as const, finishReason: { unified: "tool-calls" as const, raw: undefined }, usage },
      ]);
      return { stream };
    },
  });

let database: TestDatabase;
let server: ConversationServer;
let other: ConversationServer;
beforeAll(async () => {
  database = await testDatabase();
  const engine = aiSdk(model(), { tools });
  server = await startConversations(database.url, { engine });
  other = await startConversations(database.url, { engine });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await other[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const open = (name: TransportName, id: string, messages: UIMessage[] = [], on = server) =>
  openChat(on, name, id, {
    messages,
    tools: {
      sendAutomaticallyWhen: (chat) =>
        lastAssistantMessageIsCompleteWithApprovalResponses(chat) ||
        lastAssistantMessageIsCompleteWithToolCalls(chat),
    },
  });

/** What the audit log says of the decisions in a conversation. */
const audited = (convId: string) =>
  database.database.query<{ subject: string; outcome: string }>({
    text: `SELECT subject, outcome FROM runtime.audit_log
      WHERE action = 'tool_call.decide' AND starts_with(resource, $1) ORDER BY id`,
    values: [`/chat/${convId}/tools/`],
  });

interface ToolPart {
  readonly type: string;
  readonly toolCallId: string;
  readonly state: string;
  readonly approval?: { readonly id: string };
}
const toolsOf = (chat: AiChat) =>
  (chat.messages.at(-1)?.parts ?? []).filter(({ type }) => type.startsWith("tool-")) as unknown as ToolPart[];

async function ask(chat: AiChat, text: string): Promise<ToolPart[]> {
  await chat.sendMessage({ text });
  await settled(chat);
  return toolsOf(chat);
}

/** The messages as a page has them after it was loaded again. */
async function reloaded(id: string): Promise<UIMessage[]> {
  const response = await server.request(`/chat/${id}/messages`);
  return ((await response.json()) as { messages: UIMessage[] }).messages;
}

test.each(TRANSPORTS)(
  "over %s a tool waits for addToolApprovalResponse, and is executed once",
  async (name) => {
    const id = newConv();
    await using chat = open(name, id);
    const [pay] = await ask(chat, "Please pay");
    expect(pay).toMatchObject({ type: "tool-pay", state: "approval-requested" });
    expect((await server.state(id)).run).toMatchObject({ status: "waiting" });
    expect(paid).toEqual([]);
    await chat.addToolApprovalResponse({ id: pay!.approval!.id, approved: true });
    await says(chat, 'Let me see.[{"type":"json","value":{"paid":5}}]');
    await settled(chat);
    expect(paid).toEqual([5]);
    expect(toolsOf(chat)).toMatchObject([{ state: "output-available" }]);
    expect(chat.messages).toHaveLength(2);
    expect(await server.settled(id)).toBe("finished");
    const [, stored] = await reloaded(id);
    expect(textOf(stored)).toBe(textOf(chat.messages[1]));
    expect(stored!.id).toBe(chat.messages[1]!.id);
    expect(await audited(id)).toEqual([{ subject: "user-1", outcome: "ok" }]);
  },
);

test.each(TRANSPORTS)(
  "over %s a denied tool is not executed, and the model gets the reason",
  async (name) => {
    await using chat = open(name, newConv());
    const [pay] = await ask(chat, "Please pay");
    await chat.addToolApprovalResponse({ id: pay!.approval!.id, approved: false, reason: "Too much" });
    await says(chat, 'Let me see.[{"type":"execution-denied","reason":"Too much"}]');
    await settled(chat);
    expect(toolsOf(chat)).toMatchObject([{ state: "output-denied" }]);
    expect(paid).toEqual([]);
  },
);

test.each(TRANSPORTS)("over %s addToolOutput provides the output of a client tool", async (name) => {
  await using chat = open(name, newConv());
  const [locate] = await ask(chat, "Please locate");
  expect(locate).toMatchObject({ type: "tool-locate", state: "input-available" });
  await chat.addToolOutput({ tool: "locate", toolCallId: locate!.toolCallId, output: { city: "Bern" } });
  await says(chat, 'Let me see.[{"type":"json","value":{"city":"Bern"}}]');
  await settled(chat);
  expect(toolsOf(chat)).toMatchObject([{ state: "output-available" }]);
});

test.each(TRANSPORTS)("over %s a step with both waits for both, and a client tool can fail", async (name) => {
  await using chat = open(name, newConv());
  const [pay, locate] = await ask(chat, "Please pay and locate");
  await chat.addToolApprovalResponse({ id: pay!.approval!.id, approved: true });
  expect(paid).toEqual([]);
  const failed = { state: "output-error", errorText: "No signal" } as const;
  await chat.addToolOutput({ tool: "locate", toolCallId: locate!.toolCallId, ...failed });
  await until("the end", () => textOf(chat.messages.at(-1)).includes("No signal"));
  await settled(chat);
  expect(textOf(chat.messages.at(-1))).toContain('"value":{"paid":5}');
  expect(paid).toEqual([5]);
});

test.each(TRANSPORTS)("over %s a reloaded page on another server decides a waiting call", async (name) => {
  const id = newConv();
  {
    await using chat = open(name, id);
    await ask(chat, "Please pay");
  }
  await using again = open(name, id, await reloaded(id), other);
  const [pay] = toolsOf(again);
  expect(pay).toMatchObject({ state: "approval-requested" });
  await again.addToolApprovalResponse({ id: pay!.approval!.id, approved: true });
  await until("the end", () => textOf(again.messages.at(-1)).includes('"paid":5'));
  await settled(again);
  expect(paid).toEqual([5]);
});

test("a decision over HTTP continues the run, and a page's second decision gets the same run", async () => {
  const id = newConv();
  await using chat = open("http", id);
  const [pay] = await ask(chat, "Please pay");
  const path = `/chat/${id}/tools/${pay!.toolCallId}`;
  const decide = (body: object) => other.request(path, { method: "POST", body: JSON.stringify(body) });
  const first = await decide({ approve: true });
  expect(first.status).toBe(200);
  expect(await first.json()).toMatchObject({ pending: 0, cursor: expect.any(String) });
  await server.settled(id);
  await chat.addToolApprovalResponse({ id: pay!.approval!.id, approved: true });
  await until("the end", () => textOf(chat.messages.at(-1)).includes('"paid":5'));
  expect(paid).toEqual([5]);
  const different = await decide({ approve: false });
  expect([different.status, await different.json()]).toMatchObject([
    409,
    { error: { code: "already_decided" } },
  ]);
  const outcomes = (await audited(id)).map(({ outcome }) => outcome);
  expect(outcomes).toEqual(["ok", "ok", "already_decided"]);
});
