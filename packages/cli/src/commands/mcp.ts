import { setTimeout as wait } from "node:timers/promises";
import {
  isInitializeRequest,
  isJSONRPCRequest,
  isJSONRPCResultResponse,
  type JSONRPCMessage,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { callServer } from "../client/call_server.ts";
import { type ServerOptions, tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { note } from "../terminal/terminal.ts";

export interface McpOptions extends ServerOptions {
  readonly scope?: readonly string[];
}

/** A server that restarts is back by then; the client's own patience is a minute. */
const RETRIES = 5;
const RETRY_MS = 1_000;
const INTERNAL_ERROR = -32_603;

/** `khala mcp`: passes the messages of a client on its stdio to `/mcp` of a server, and the answers back. */
export async function mcp(options: McpOptions): Promise<void> {
  const url = serverUrl(options.url);
  const { scopes = [] } = await callServer<{ scopes?: string[] }>(url, "/ops/v1/about");
  const token = cachedToken(url, options, options.scope ?? scopes);
  await token();
  const http = new StreamableHTTPClientTransport(new URL("/mcp", url), {
    async fetch(address, init) {
      const headers = new Headers(init?.headers);
      headers.set("authorization", `Bearer ${await token()}`);
      return fetch(address, { ...init, headers });
    },
    reconnectionOptions: {
      initialReconnectionDelay: 500,
      maxReconnectionDelay: 10_000,
      reconnectionDelayGrowFactor: 1.5,
      maxRetries: Number.MAX_SAFE_INTEGER,
    },
  });
  const stdio = new StdioServerTransport();
  const ended = Promise.withResolvers<void>();
  /** The request that opened the session, whose answer names the version that both agreed on. */
  let initializing: JSONRPCMessage | undefined;
  /** Settles when the session is open: it also gets the client's earlier messages. */
  let opened: Promise<void> = Promise.resolve();

  stdio.onmessage = (message) => {
    if (isInitializeRequest(message)) {
      initializing = message;
      opened = pass(message);
    } else void opened.then(() => pass(message));
  };
  http.onmessage = (message) => {
    const isAnswer =
      isJSONRPCResultResponse(message) && message.id === (initializing as { id?: unknown })?.id;
    if (isAnswer) http.setProtocolVersion(String(message.result.protocolVersion));
    void stdio.send(message);
  };
  http.onerror = (error) => note(`khala: ${error.message}`);
  stdio.onclose = () => ended.resolve();
  await http.start();
  await stdio.start();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => ended.resolve());
  await ended.promise;
  await http.terminateSession().catch(() => {});
  await http.close();
  await stdio.close();

  async function pass(message: JSONRPCMessage): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await http.send(message);
      } catch (error) {
        // fetch fails like this where no server listens: nothing of the request has arrived.
        if (error instanceof TypeError && attempt < RETRIES) {
          await wait(RETRY_MS);
          continue;
        }
        const reason = error instanceof Error ? error.message : String(error);
        if (!isJSONRPCRequest(message)) return note(`khala: ${reason}`);
        await stdio.send({
          jsonrpc: "2.0",
          id: message.id,
          error: { code: INTERNAL_ERROR, message: reason },
        });
        return;
      }
    }
  }
}

/** The same token until it should be replaced. */
function cachedToken(url: string, options: McpOptions, scopes: readonly string[]): () => Promise<string> {
  const source = tokenSource(url, options.token, scopes);
  let current: Promise<string> | undefined;
  let renewAt = 0;
  return () => {
    if (current && Date.now() < renewAt) return current;
    current = source.get().then(
      (token) => {
        renewAt = Date.now() + source.renewAfterMs(Date.now());
        return token;
      },
      (error) => {
        current = undefined;
        throw error;
      },
    );
    renewAt = Number.POSITIVE_INFINITY;
    return current;
  };
}
