import { KhalaError } from "@khala/contracts";
import {
  createMcpHandler,
  InMemoryServerEventBus,
  isInitializeRequest,
  isLegacyRequest,
} from "@modelcontextprotocol/server";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { App } from "../../app.ts";
import type { Context } from "../../kit/context.ts";
import { whenRevoked } from "../auth/revocations.ts";
import type { Handler, Http } from "../http/http.ts";
import { localApi, type McpCaller } from "./caller.ts";
import { type McpServerOptions, mcpServer, protocolError } from "./mcp_server.ts";
import { sendResponse } from "./response.ts";
import { routeTools } from "./route_tools.ts";
import { openSessions, type Sessions, type SessionsOptions } from "./sessions.ts";
import { waitingTools } from "./waiting_tools.ts";
import { Watches } from "./watches.ts";

export interface McpHandlerOptions extends Pick<SessionsOptions, "places" | "revocations" | "watching"> {
  readonly app: App;
  readonly version: string;
  /** Ends what waits. */
  readonly signal: AbortSignal;
}

/** Handles requests to `/mcp`. Loading this module loads the SDK. */
export function mcpHandler(http: Http, context: Context, options: McpHandlerOptions): Handler {
  const { app, revocations, watching, signal, version, places } = options;
  const api = localApi(http.app);
  const { agents, schemas } = app;
  const server: McpServerOptions = {
    api,
    models: app.models,
    tools: [...routeTools(api, http.routes), ...waitingTools({ api, context, agents, schemas })],
    version,
  };
  const sessions = openSessions(context, {
    revocations,
    watching,
    places,
    newServer: (client) => mcpServer(server, client),
  });
  signal.addEventListener("abort", () => void sessions.close(), { once: true });

  async function handleInSession(
    web: Request,
    request: FastifyRequest,
    reply: FastifyReply,
    caller: McpCaller,
  ): Promise<void> {
    const session = await sessionOf(sessions, request, caller);
    const { response, done } = await session.handle(web, request.body, caller);
    // A live stream ends with its token, whatever the session goes on with; its client opens it again with a fresh one.
    const ending = new AbortController();
    const unsubscribe = whenRevoked(revocations, caller.viewer, () => ending.abort());
    const { expiresAt } = caller.viewer;
    try {
      await sendResponse(reply, context, response, { signal: ending.signal, expiresAt });
    } finally {
      unsubscribe();
      done();
    }
  }

  async function handleAlone(
    web: Request,
    request: FastifyRequest,
    reply: FastifyReply,
    caller: McpCaller,
  ): Promise<void> {
    const ending = new AbortController();
    const bus = new InMemoryServerEventBus();
    const watches = new Watches(context, watching, (uri) => bus.publish({ kind: "resource_updated", uri }));
    const unsubscribe = whenRevoked(revocations, caller.viewer, () => ending.abort());
    try {
      const uris = watchedUris(request.body);
      for (const uri of uris)
        await watches.add(caller.viewer, uri).catch((error) => {
          throw Object.assign(protocolError(error, uri) as Error, { refused: true });
        });
      const handler = createMcpHandler(() => mcpServer(server, { caller: () => caller }), {
        legacy: "reject",
        bus,
      });
      const listening = new Request(web, { signal: AbortSignal.any([web.signal, ending.signal]) });
      const response = await handler.fetch(listening, { parsedBody: request.body });
      await sendResponse(
        reply,
        context,
        response,
        uris.length > 0 ? { expiresAt: caller.viewer.expiresAt } : {},
      );
    } catch (error) {
      const { refused, code, message } = error as { refused?: true; code?: number; message: string };
      if (!refused) throw error;
      const { id } = request.body as { id?: unknown };
      await reply.send({ jsonrpc: "2.0", id, error: { code, message } });
    } finally {
      unsubscribe();
      watches.close();
    }
  }

  return async (viewer, request, reply) => {
    const caller = { viewer, authorization: request.headers.authorization ?? "", address: request.ip };
    const leaving = new AbortController();
    reply.raw.once("close", () => leaving.abort());
    const web = webRequest(request, AbortSignal.any([leaving.signal, signal]));
    if (await isLegacyRequest(web, request.body)) await handleInSession(web, request, reply, caller);
    else await handleAlone(web, request, reply, caller);
    return reply;
  };
}

/** The session that the request names, or a new one for a request that initializes one. */
async function sessionOf(sessions: Sessions, request: FastifyRequest, caller: McpCaller) {
  const id = request.headers["mcp-session-id"];
  if (typeof id === "string") return sessions.find(id, caller);
  const messages = [request.body].flat();
  if (messages.some((message) => isInitializeRequest(message))) return sessions.open(caller);
  const message = "Send the request `initialize` first, then send the header Mcp-Session-Id from its answer.";
  throw new KhalaError("invalid_request", message, { field: "mcp-session-id" });
}

/** The resources that a request subscribes to. */
function watchedUris(body: unknown): string[] {
  const { method, params } = Object(body) as {
    method?: unknown;
    params?: { notifications?: { resourceSubscriptions?: unknown } };
  };
  const uris = method === "subscriptions/listen" ? params?.notifications?.resourceSubscriptions : undefined;
  return Array.isArray(uris) ? [...new Set(uris.filter((uri) => typeof uri === "string"))] : [];
}

/** The request as the SDK takes it. Its body is parsed already. */
function webRequest({ method, url, headers, host }: FastifyRequest, signal: AbortSignal): Request {
  const sent = Object.entries(headers).filter(([name]) => !name.startsWith(":"));
  return new Request(new URL(url, `http://${host || "localhost"}`), {
    method,
    headers: sent.map(([name, value]) => [name, String(value)]),
    signal,
  });
}
