import { randomUUID } from "node:crypto";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { appendToRun, type TestServer } from "@khala/test-support/servers/servers";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ensureInstalled } from "../../scripts/install.ts";
import { importPeer } from "../peers/import_peer.ts";
import { ADA, startMcpServer } from "./mcp_server.ts";

let database: TestDatabase;
let server: TestServer;

beforeAll(async () => {
  database = await testDatabase();
  server = await startMcpServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

/** What both generations of the official client have. */
interface McpClient {
  listTools(): Promise<{ tools: { name: string; description?: string | undefined; inputSchema: object }[] }>;
  callTool(params: { name: string; arguments?: Record<string, unknown> }): Promise<object>;
  listResources(): Promise<{ resources: { uri: string }[] }>;
  readResource(params: { uri: string }): Promise<object>;
  close(): Promise<void>;
}

/** What is used of @modelcontextprotocol/sdk 1.32.2. */
interface SdkClient extends McpClient {
  connect(transport: object): Promise<void>;
  setNotificationHandler(schema: object, handle: (notified: { params: { uri: string } }) => void): void;
  subscribeResource(params: { uri: string }): Promise<unknown>;
}
interface SdkClients {
  Client: new (info: { name: string; version: string }) => SdkClient;
}
interface SdkTransports {
  StreamableHTTPClientTransport: new (url: URL, options: { requestInit: RequestInit }) => object;
}

await ensureInstalled("e2e/peers");
const SDK = "@modelcontextprotocol/sdk";
const { Client: ClientV1 } = await importPeer<SdkClients>(`${SDK}/client/index.js`);
const { StreamableHTTPClientTransport: TransportV1 } = await importPeer<SdkTransports>(
  `${SDK}/client/streamableHttp.js`,
);
const { ResourceUpdatedNotificationSchema } = await importPeer<{ ResourceUpdatedNotificationSchema: object }>(
  `${SDK}/types.js`,
);

interface Connected extends AsyncDisposable {
  readonly client: McpClient;
  /** URIs that were said to have changed. */
  readonly updated: string[];
  watch(uri: string): Promise<unknown>;
}

type Connect = (claims?: object) => Promise<Connected>;

/** The SDK's first generation: sessions, and a stream of notifications. */
async function connectV1(claims: object = {}): Promise<Connected> {
  const token = await server.token({ ...ADA, ...claims });
  const client = new ClientV1({ name: "test", version: "1" });
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  await client.connect(new TransportV1(new URL("/mcp", server.url), { requestInit }));
  const updated: string[] = [];
  client.setNotificationHandler(
    ResourceUpdatedNotificationSchema,
    ({ params }) => void updated.push(params.uri),
  );
  const watch = (uri: string) => client.subscribeResource({ uri });
  return { client, updated, watch, [Symbol.asyncDispose]: () => client.close() };
}

/** The second generation, with the newest protocol: requests that stand alone. */
async function connectV2(claims: object = {}): Promise<Connected> {
  const token = await server.token({ ...ADA, ...claims });
  const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const requestInit = { headers: { authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", server.url), { requestInit }));
  const updated: string[] = [];
  client.setNotificationHandler(
    "notifications/resources/updated",
    ({ params }) => void updated.push(params.uri),
  );
  const watch = (uri: string) => client.listen({ resourceSubscriptions: [uri] });
  return { client, updated, watch, [Symbol.asyncDispose]: () => client.close() };
}

interface Answer {
  readonly isError?: boolean;
  readonly content: readonly { readonly text: string }[];
  // biome-ignore lint/suspicious/noExplicitAny: each tool answers with something else.
  readonly structuredContent?: any;
}

async function call(
  { client }: Connected,
  name: string,
  args: Record<string, unknown> = {},
): Promise<Answer> {
  return (await client.callTool({ name, arguments: args })) as Answer;
}

describe.each<[string, Connect]>([
  ["a session (SDK 1)", connectV1],
  ["requests that stand alone (SDK 2)", connectV2],
])("%s", (_, connect) => {
  test("lists tools with the schemas of their routes and of the app", async () => {
    await using ada = await connect();
    const { tools } = await ada.client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining([
        "publish_artifact",
        "follow_correlation",
        "send_message",
        "list_approvals",
        "agent_writer",
      ]),
    );
    expect(tools.find(({ name }) => name === "agent_writer")).toMatchObject({
      description: "Writes an article about a subject.",
      inputSchema: { type: "object", properties: { subject: { type: "string" } } },
    });
    expect(tools.find(({ name }) => name === "publish_artifact")?.inputSchema).toMatchObject({
      properties: { type: { type: "string" }, visibility: { $ref: "#/$defs/Visibility" } },
      required: ["type"],
    });
  });

  test("lists the tools that the token allows, and refuses the others", async () => {
    await using reader = await connect({ scopes: ["blackboard:read"] });
    const { tools } = await reader.client.listTools();
    const names = tools.map(({ name }) => name);
    expect(names).toContain("list_artifacts");
    expect(names).not.toContain("publish_artifact");
    expect(names).not.toContain("agent_writer");
    await expect(call(reader, "publish_artifact", { type: "Topic" })).rejects.toThrow("publish_artifact");
  });

  test("publishes an artifact and follows its correlation to the end", async () => {
    await using ada = await connect();
    const correlation_id = `mcp-${randomUUID()}`;
    const published = await call(ada, "publish_artifact", {
      type: "Topic",
      payload: { subject: "rain" },
      correlation_id,
    });
    expect(published.structuredContent.artifacts).toHaveLength(1);
    const followed = await call(ada, "follow_correlation", { correlation_id });
    expect(followed.structuredContent).toMatchObject({ status: "done", artifacts: "2" });
  });

  test("gives work to an agent of the app and returns its output", async () => {
    await using ada = await connect();
    const { structuredContent } = await call(ada, "agent_writer", { subject: "snow" });
    expect(structuredContent).toMatchObject({
      status: "done",
      outputs: [{ type: "Article", payload: { text: "About snow." } }],
    });
  });

  test("explains wrong arguments of an agent", async () => {
    await using ada = await connect();
    const { isError, content } = await call(ada, "agent_writer", { subject: 7 });
    expect(isError).toBe(true);
    expect(content[0]!.text).toContain("subject");
  });

  test("refuses arguments with half a character by name of the fault", async () => {
    await using ada = await connect();
    const half = call(ada, "get_document", { doc_key: "run:\ud800" });
    await expect(half).rejects.toThrow("half a character");
  });

  test("sends a message and waits for the end of its run", async () => {
    await using ada = await connect();
    const conv_id = `mcp-${randomUUID()}`;
    const { structuredContent } = await call(ada, "send_message", { conv_id, message: "/fail No paper." });
    const error = { code: "engine_failed", message: "No paper." };
    expect(structuredContent).toMatchObject({ conv_id, status: "failed", error });
  });

  test("decides a tool call that an answer waits for", async () => {
    await using ada = await connect();
    const conv_id = `mcp-${randomUUID()}`;
    const sent = await call(ada, "send_message", { conv_id, message: "/approve pay 5 euros" });
    expect(sent.structuredContent).toMatchObject({ status: "waiting" });
    // The inbox has a call a moment after the conversation says that it waits.
    const call_id = await eventually("the call in the inbox", async () => {
      const { approvals } = (await call(ada, "list_approvals")).structuredContent;
      const found = approvals.find((each: { conv_id?: string }) => each.conv_id === conv_id);
      return found?.tool_call_id as string | undefined;
    });
    const decided = await call(ada, "decide_tool_call", { conv_id, call_id, approved: true });
    expect(decided.structuredContent).toMatchObject({ run_id: sent.structuredContent.run_id });
    const answered = await eventually("the answer", async () => {
      const { structuredContent } = await call(ada, "get_conversation", { conv_id });
      return structuredContent.run ? undefined : JSON.stringify(structuredContent.messages);
    });
    expect(answered).toContain("Done: pay 5 euros");
    const again = await call(ada, "decide_tool_call", { conv_id, call_id, approved: false });
    expect(again).toMatchObject({
      isError: true,
      content: [{ text: expect.stringContaining("already_decided") }],
    });
  });

  test("lists approvals and decides them", async () => {
    await using ada = await connect();
    await call(ada, "publish_artifact", { type: "Plan", payload: {} });
    const id = await eventually("an approval", async () => {
      const { structuredContent } = await call(ada, "list_approvals");
      return structuredContent.approvals[0]?.id as string | undefined;
    });
    expect((await call(ada, "decide_approval", { id, approved: true })).structuredContent).toEqual({
      done: true,
    });
    const again = await call(ada, "decide_approval", { id: randomUUID(), approved: true });
    expect(again).toMatchObject({ isError: true, content: [{ text: expect.stringContaining("not_found") }] });
  });

  test("shows dead letters and replays them", async () => {
    await using ada = await connect();
    await call(ada, "publish_artifact", { type: "Bad", payload: {} });
    const letter = await eventually("a dead letter", async () => {
      const { structuredContent } = await call(ada, "list_dead_letters", { agent: "failing" });
      return structuredContent.dead_letters[0] as { id: string } | undefined;
    });
    const read = await call(ada, "get_dead_letter", { agent: "failing", id: letter.id });
    expect(read.structuredContent.failure).toMatchObject({ message: "It fails always." });
    const replayed = await call(ada, "replay_dead_letter", { agent: "failing", id: letter.id });
    expect(replayed.structuredContent.status).toBe("replayed");
  });

  test("reads documents and conversations, and notifies of changes", async () => {
    await using ada = await connect();
    const token = await server.token(ADA);
    const run = `run-${randomUUID()}`;
    await appendToRun(server, token, run, { type: "run.started", data: { title: "One" } });
    const uri = `khala://documents/${encodeURIComponent(`run:${run}`)}`;
    await eventually("the document", () =>
      ada.client.readResource({ uri }).then(
        () => true,
        () => false,
      ),
    );
    await ada.watch(uri);
    await appendToRun(server, token, run, { type: "run.step", data: { name: "two" } });
    await eventually("the notification", async () => ada.updated.includes(uri));
    const read = JSON.stringify(await ada.client.readResource({ uri }));
    expect(read).toContain("two");

    const conv_id = `mcp-${randomUUID()}`;
    await call(ada, "send_message", { conv_id, message: "Hello" });
    const { resources } = await ada.client.listResources();
    const conversation = `khala://conversations/${conv_id}`;
    expect(resources.map((each) => each.uri)).toEqual(
      expect.arrayContaining(["khala://topics/runtime.run_summaries", conversation]),
    );
    await ada.watch(conversation);
    await call(ada, "send_message", { conv_id, message: "Again" });
    await eventually("the notification", async () => ada.updated.includes(conversation));
  });

  test("answers for resources of others as for missing ones", async () => {
    await using ada = await connect();
    const conv_id = `mcp-${randomUUID()}`;
    await call(ada, "send_message", { conv_id, message: "Hello" });
    await using other = await connect({ sub: "bob" });
    const uri = `khala://conversations/${conv_id}`;
    await expect(other.client.readResource({ uri })).rejects.toThrow();
    await expect(other.watch(uri)).rejects.toThrow();
    expect(await call(other, "get_conversation", { conv_id })).toMatchObject({ isError: true });
  });
});

describe("sessions", () => {
  const initialize = (token: string, headers: Record<string, string> = {}) =>
    server.request("/mcp", token, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...headers,
      },
      body: JSON.stringify({
        jsonrpc: "2.0",
        id: 1,
        method: "initialize",
        params: {
          protocolVersion: "2025-06-18",
          capabilities: {},
          clientInfo: { name: "test", version: "1" },
        },
      }),
    });
  const open = async (token: string) => (await initialize(token)).headers.get("mcp-session-id")!;
  const list = (token: string, session: string) =>
    server.request("/mcp", token, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-session-id": session,
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 2, method: "tools/list" }),
    });

  test("belong to their subject only", async () => {
    const session = await open(await server.token(ADA));
    expect((await list(await server.token(ADA), session)).status).toBe(200);
    expect((await list(await server.token({ ...ADA, sub: "bob" }), session)).status).toBe(404);
    expect((await list(await server.token({ ...ADA, org_id: "globex" }), session)).status).toBe(404);
  });

  test("end when their token is revoked, with their stream", async () => {
    const token = await server.token({ ...ADA, sub: "eve" });
    const session = await open(token);
    const stream = await server.request("/mcp", token, {
      headers: { accept: "text/event-stream", "mcp-session-id": session },
    });
    expect(stream.status).toBe(200);
    const operator = await server.token({ org_id: ADA.org_id, sub: "olga", scopes: ["ops"] });
    await server.request("/api/sync/revoke", operator, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ sub: "eve" }),
    });
    // It resolves only when the stream has ended.
    await stream.text();
    expect((await list(token, session)).status).toBe(401);
  });

  test("end when their client ends them", async () => {
    const token = await server.token(ADA);
    const session = await open(token);
    const headers = { "mcp-session-id": session };
    expect((await server.request("/mcp", token, { method: "DELETE", headers })).status).toBe(200);
    expect((await list(token, session)).status).toBe(404);
  });

  test("are not opened for pages of other origins", async () => {
    const token = await server.token(ADA);
    expect((await initialize(token, { origin: "https://ok.example" })).status).toBe(200);
    expect((await initialize(token, { origin: "https://evil.example" })).status).toBe(403);
  });

  test("tell a client without a token where to get one", async () => {
    const response = await server.request("/mcp", undefined, {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json" },
    });
    expect(response.status).toBe(401);
    const [, url] = /resource_metadata="([^"]+)"/.exec(response.headers.get("www-authenticate")!)!;
    expect(await (await fetch(url!)).json()).toMatchObject({
      resource: `${server.url}/mcp`,
      bearer_methods_supported: ["header"],
    });
  });

  test("refuse a message that is too large", async () => {
    const response = await server.request("/mcp", await server.token(ADA), {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ text: "x".repeat(2 << 20) }),
    });
    expect(response.status).toBe(413);
  });
});
