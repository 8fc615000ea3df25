import { createMCPClient, type MCPClient, type MCPTransport } from "@ai-sdk/mcp";
import { Experimental_StdioMCPTransport as StdioTransport } from "@ai-sdk/mcp/mcp-stdio";

type Tools = Awaited<ReturnType<MCPClient["tools"]>>;
type Transport = Parameters<typeof createMCPClient>[0]["transport"];

/** A program that speaks MCP on its standard input and output. Of the environment it gets what you pass. */
export function program(command: string, args: string[], env: Record<string, string> = {}): MCPTransport {
  return new StdioTransport({ command, args, env });
}

/**
 * The tools of an MCP server, for `tools` of `aiSdk`. All conversations share a connection. Each turn asks for the tools, which
 * shows whether the connection still stands; if not, the turn makes a new one.
 */
export function mcpTools(transport: () => Transport): () => Promise<Tools> {
  let shared: Promise<MCPClient> | undefined;
  return async () => {
    shared ??= createMCPClient({ transport: transport() });
    const client = shared;
    try {
      return await (await client).tools();
    } catch {
      // Of several turns that find it broken, the first one reconnects.
      if (shared === client) shared = createMCPClient({ transport: transport() });
      return (await shared).tools();
    }
  };
}
