import { agent, FatalError } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { z } from "zod";

/** A person with every scope that the tests need. */
export const ADA = {
  org_id: "acme",
  sub: "ada",
  scopes: ["runtime.run_summaries", "runtime:write", "chat", "blackboard:read", "blackboard:write"],
};

const schemas = { Topic: z.object({ subject: z.string() }), Article: z.object({ text: z.string() }) };

const agents = [
  agent("writer", {
    consumes: "Topic",
    schemas,
    expose: "Writes an article about a subject.",
    run: ({ artifact }) => ({ type: "Article", payload: { text: `About ${artifact.payload.subject}.` } }),
  }),
  agent("careful", { consumes: "Plan", approval: true, run: () => {} }),
  agent("failing", {
    consumes: "Bad",
    run() {
      throw new FatalError("It fails always.");
    },
  }),
];

/** A server with an engine, and agents: one that is a tool, one that needs approval, and one that fails. */
export function startMcpServer(databaseUrl: string): Promise<TestServer> {
  return startServer(databaseUrl, {
    agents,
    engine: scripted(),
    settings: { KHALA_BOARD_POLL_MS: "50", KHALA_ORIGINS: "https://ok.example" },
  });
}
