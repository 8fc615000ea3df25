import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { createMCPClient } from "@ai-sdk/mcp";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { appendToRun, type TestServer } from "@khala/test-support/servers/servers";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
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

test("the AI SDK's client gives the tools to a model", async () => {
  const token = await server.token(ADA);
  const client = await createMCPClient({
    transport: { type: "http", url: `${server.url}/mcp`, headers: { authorization: `Bearer ${token}` } },
  });
  try {
    const tools = await client.tools();
    const options = { toolCallId: "1", messages: [], context: {} };
    const result = await tools.agent_writer!.execute({ subject: "fog" }, options as never);
    expect(result).toMatchObject({
      structuredContent: { status: "done", outputs: [{ payload: { text: "About fog." } }] },
    });
  } finally {
    await client.close();
  }
});

describe.each(["legacy", "auto"] as const)("khala mcp, for a client of the official SDK (%s)", (mode) => {
  test("passes on tools, resources and notifications", async () => {
    const token = await server.token(ADA);
    const updated: string[] = [];
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
      updated.push(params.uri);
    });
    const main = join(import.meta.dirname, "../../packages/cli/src/main.ts");
    await client.connect(
      new StdioClientTransport({
        command: process.execPath,
        args: ["--conditions=khala-source", main, "mcp", "--url", server.url],
        env: { PATH: process.env.PATH!, KHALA_TOKEN: token },
      }),
    );
    try {
      const { structuredContent } = await client.callTool({
        name: "agent_writer",
        arguments: { subject: "ice" },
      });
      expect(structuredContent).toMatchObject({ outputs: [{ payload: { text: "About ice." } }] });

      const run = `run-${randomUUID()}`;
      await appendToRun(server, token, run, { type: "run.started" });
      const uri = `khala://documents/${encodeURIComponent(`run:${run}`)}`;
      if (mode === "legacy") await client.subscribeResource({ uri });
      else await client.listen({ resourceSubscriptions: [uri] });
      await appendToRun(server, token, run, { type: "run.stopped" });
      await eventually("the notification", async () => updated.includes(uri));
      expect(JSON.stringify(await client.readResource({ uri }))).toContain(run);
    } finally {
      await client.close();
    }
  });
});
