import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import type { ConversationStateJson, PartJson } from "@khala/contracts/conversation/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { tokenMint } from "@khala/test-support/kit/tokens";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { freePort } from "@khala/test-support/processes/ports";
import type { ModelAnswer, ModelRefusal } from "@khala/test-support/providers/answer";
import {
  type ModelProvider,
  type ModelRequest,
  startModelProvider,
} from "@khala/test-support/providers/model_provider";
import { newConv } from "@khala/test-support/servers/ai_chat";
import { startGateway } from "@khala/test-support/servers/gateways";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { must, ROOT } from "../../scripts/run.ts";

const tokens = tokenMint();
const MCP_SERVER = join(ROOT, "e2e/peers/node_modules/@modelcontextprotocol/server-everything/dist/index.js");

let database: TestDatabase;
let provider: ModelProvider;
let respond: (request: ModelRequest, count: number) => ModelAnswer | ModelRefusal;
beforeAll(async () => {
  await ensureInstalled("e2e/peers");
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());
beforeEach(async () => {
  let count = 0;
  provider = await startModelProvider((request) => respond(request, ++count));
});
afterEach(() => provider[Symbol.asyncDispose]());

/** A server with the app of an example, whose models answer as `respond` says. */
async function startExample(name: string, env: Readonly<Record<string, string>>) {
  const server = await startGateway(
    {
      DATABASE_URL: database.url,
      KHALA_AUTH_SECRETS: tokens.secrets,
      KHALA_DATABASE_POOL: "5",
      OPENAI_BASE_URL: provider.url,
      OPENAI_API_KEY: "sk-test",
      ANTHROPIC_BASE_URL: provider.url,
      ANTHROPIC_API_KEY: "sk-test",
      EXAMPLE: join(ROOT, "examples", name, "app.ts"),
      ...env,
    },
    "example.ts",
  );
  const headers = {
    authorization: `Bearer ${await tokens.mint("acme", "ada", { scopes: ["chat"] })}`,
    "content-type": "application/json",
  };
  return {
    /** Sends a message; resolves with the state after its answer. */
    async ask(message: string, conv_id = newConv()): Promise<Required<ConversationStateJson>> {
      const body = JSON.stringify({ conv_id, message });
      const sent = await fetch(`${server.url}/chat`, { method: "POST", headers, body });
      expect(sent.status).toBe(202);
      const { run_id } = (await sent.json()) as { run_id: string };
      return eventually("the answer ends", async () => {
        const response = await fetch(`${server.url}/chat/${conv_id}`, { headers });
        const state = (await response.json()) as Required<ConversationStateJson>;
        return !state.run && state.last_run?.run_id === run_id ? state : undefined;
      });
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

const answerOf = ({ messages }: Required<ConversationStateJson>): readonly PartJson[] =>
  messages.at(-1)?.parts ?? [];

describe.each([
  ["openai/gpt-5-mini", "openai"],
  ["anthropic/claude-sonnet-4-5", "anthropic"],
])("examples/model_chat with MODEL=%s", (MODEL, name) => {
  test("answers, remembers earlier messages, and explains why it cannot answer", async () => {
    await using example = await startExample("model_chat", { MODEL });
    respond = (_, count) =>
      count === 1
        ? { text: ["Hello", " Ada."] }
        : count === 2
          ? { text: ["As I said."] }
          : { error: "context_length" };
    const conv = newConv();
    const first = await example.ask("Hi", conv);
    expect(first.last_run).toMatchObject({ status: "finished" });
    expect(answerOf(first)).toEqual([{ text: "Hello Ada." }]);
    await example.ask("And?", conv);
    expect(provider.requests.map((request) => request.provider)).toEqual([name, name]);
    const { model, ...asked } = provider.requests[1]!.body;
    expect(model).toBe(MODEL.split("/")[1]);
    for (const text of ["You talk to ada.", "Hi", "Hello Ada.", "And?"])
      expect(JSON.stringify(asked)).toContain(text);
    expect((await example.ask("More", conv)).last_run).toMatchObject({
      status: "failed",
      error: { code: "context_length" },
    });
  });
});

test("examples/model_chat lists the MODELs it can use", async () => {
  await expect(startExample("model_chat", { MODEL: "gpt" })).rejects.toThrow(
    'MODEL is "gpt". Use one of: openai/…, anthropic/….',
  );
});

describe("examples/mcp_tools", () => {
  beforeEach(() => {
    respond = (_, count) =>
      count % 2 === 1
        ? { call: { id: `call_${count}`, name: "get-sum", input: { a: 2, b: 40 } } }
        : { text: ["It is 42."] };
  });

  const expectSum = (state: Required<ConversationStateJson>, id: string) => {
    expect(answerOf(state)).toEqual([
      {
        tool: {
          tool_call_id: id,
          tool: "get-sum",
          input: { a: 2, b: 40 },
          output: { content: [{ type: "text", text: "The sum of 2 and 40 is 42." }], isError: false },
        },
      },
      { text: "It is 42." },
    ]);
  };

  test("uses the tools of a program over stdio", async () => {
    await using example = await startExample("mcp_tools", {
      MCP_COMMAND: `${process.execPath} ${MCP_SERVER} stdio`,
    });
    expectSum(await example.ask("2 + 40?"), "call_1");
  });

  test("uses the tools of a server over HTTP, and reconnects after its restart", async () => {
    const port = await freePort();
    const MCP_URL = `http://127.0.0.1:${port}/mcp`;
    await using example = await startExample("mcp_tools", { MCP_URL });
    {
      await using _server = await startMcpServer(port);
      expectSum(await example.ask("2 + 40?"), "call_1");
    }
    await using _server = await startMcpServer(port);
    expectSum(await example.ask("2 + 40?"), "call_3");
  });
});

/** The MCP server from npm over HTTP. */
async function startMcpServer(port: number): Promise<AsyncDisposable> {
  const child = spawn(process.execPath, [MCP_SERVER, "streamableHttp"], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...bareEnv(), PORT: String(port) },
  });
  for await (const line of createInterface(child.stderr)) if (line.includes("listening on port")) break;
  child.stderr.resume();
  return {
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

describe("examples/langgraph_engine", () => {
  const modules = join(ROOT, "examples/langgraph_engine/node_modules");
  beforeAll(async () => {
    await mkdir(modules, { recursive: true });
    await rm(join(modules, "@langchain"), { recursive: true, force: true });
    await symlink(join(ROOT, "e2e/peers/node_modules/@langchain"), join(modules, "@langchain"), "dir");
  });
  afterAll(() => rm(modules, { recursive: true }));

  test("has the types that it claims", { timeout: 300_000 }, async () => {
    await must("tsc", ["--noEmit", "-p", join(ROOT, "examples/langgraph_engine")]);
  });

  test("streams the text of a graph, with its tool calls and their results", async () => {
    await using example = await startExample("langgraph_engine", {});
    respond = (_, count) =>
      count === 1
        ? { text: ["I look."], call: { id: "call_1", name: "weather", input: { city: "Oslo" } } }
        : { text: ["It is", " cold."] };
    const state = await example.ask("Weather in Oslo?");
    expect(state.last_run).toMatchObject({ status: "finished" });
    expect(answerOf(state)).toEqual([
      { text: "I look." },
      {
        tool: {
          tool_call_id: "call_1",
          tool: "weather",
          input: { city: "Oslo" },
          output: "It is 4 °C in Oslo.",
        },
      },
      { text: "It is cold." },
    ]);
    expect(JSON.stringify(provider.requests[1]!.body)).toContain("It is 4 °C in Oslo.");
  });
});
