import { defineApp, runSummaries } from "@khala/server";
import { aiSdk } from "@khala/server/engines";
import { modelOf } from "../model_chat/model.ts";
import { mcpTools, program } from "./connection.ts";

const { MCP_URL, MCP_COMMAND = "npx -y @modelcontextprotocol/server-everything stdio" } = process.env;
const [command = "", ...args] = MCP_COMMAND.split(" ");

/** A chat whose model uses the tools of an MCP server: the one at MCP_URL, or the program MCP_COMMAND. */
export default defineApp({
  models: [runSummaries],
  engine: aiSdk(modelOf(), {
    tools: mcpTools(() => (MCP_URL ? { type: "http", url: MCP_URL } : program(command, args))),
    maxSteps: 5,
  }),
});
