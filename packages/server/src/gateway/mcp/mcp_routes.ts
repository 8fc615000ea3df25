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
import { originAllowed } from "../auth/origin.ts";
import { type Revocations, whenRevoked } from "../auth/revocations.ts";
import type { Handler, Http } from "../http/http.ts";
import { localApi, type McpCaller } from "./caller.ts";
import { type McpServerOptions, mcpServer, protocolError } from "./mcp_server.ts";
import { sendResponse } from "./response.ts";
import { routeTools } from "./route_tools.ts";
import { openSessions, type Sessions } from "./sessions.ts";
import { waitingTools } from "./waiting_tools.ts";
import type { WatchOptions } from "./watch.ts";
import { Watches } from "./watches.ts";

export interface McpRoutesOptions {
  readonly app: App;
  readonly watching: WatchOptions;
  readonly revocations: Revocations;
  readonly origins: readonly string[];
  readonly version: string;
  /** The issuer of tokens, if it is a URL: clients find out there how to get one. */
  readonly issuer?: string | undefined;
  /** Ends what waits. */
  readonly signal: AbortSignal;
}

/** The path of the metadata by which clients learn which tokens are accepted (RFC 9728). */
const METADATA_PATH = "/.well-known/oauth-protected-resource";

/**
 * `/mcp`, the Model Context Protocol over streamable HTTP: sessions for clients up to 2025-11-25, requests that stand alone
 * for later ones. Call it after the other routes are added: its tools are routes.
 */
export function mcpRoutes(http: Http, context: Context, options: McpRoutesOptions): void {
  const { app, revocations, watching, signal, version } = options;
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
    newServer: (client) => mcpServer(server, client),
  });
  signal.addEventListener("abort", () => void sessions.close(), { once: true });

  const handle: Handler = async (viewer, request, reply) => {
    const { origin, host, authorization = "" } = request.headers;
    if (!originAllowed(origin, options.origins, host ?? ""))
      throw new KhalaError(
        "origin_not_allowed",
        "Pages of this origin may not call /mcp. See KHALA_ORIGINS.",
      );
    const caller = { viewer, authorization, address: request.ip };
    const leaving = new AbortController();
    reply.raw.once("close", () => leaving.abort());
    const web = webRequest(request, AbortSignal.any([leaving.signal, signal]));
    if (await isLegacyRequest(web, request.body)) await handleInSession(web, request, reply, caller);
    else await handleAlone(web, request, reply, caller);
    return reply;
  };
  for (const method of ["POST", "GET", "DELETE"] as const)
    http.route("mcp.use", method, "/mcp", handle, { ...(method === "GET" && { exposeHeadRoute: false }) });

  for (const path of [METADATA_PATH, `${METADATA_PATH}/mcp`])
    http.open("GET", path, async (request, reply) =>
      reply.header("Access-Control-Allow-Origin", "*").send({
        resource: `${request.protocol}://${request.host}/mcp`,
        resource_name: "Khala",
        bearer_methods_supported: ["header"],
        ...(options.issuer && URL.canParse(options.issuer) && { authorization_servers: [options.issuer] }),
      }),
    );

  async function handleInSession(
    web: Request,
    request: FastifyRequest,
    reply: FastifyReply,
    caller: McpCaller,
  ): Promise<void> {
    const session = await sessionOf(sessions, request, caller);
    const { response, done } = await session.handle(web, request.body, caller);
    // A live stream ends with its token; its client opens it again with a fresh one.
    const expiresAt = request.method === "GET" ? caller.viewer.expiresAt : undefined;
    await sendResponse(reply, context, response, expiresAt).finally(done);
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
    const forget = whenRevoked(revocations, caller.viewer, () => ending.abort());
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
      await sendResponse(reply, context, response, uris.length > 0 ? caller.viewer.expiresAt : undefined);
    } catch (error) {
      const { refused, code, message } = error as { refused?: true; code?: number; message: string };
      if (!refused) throw error;
      const { id } = request.body as { id?: unknown };
      await reply.send({ jsonrpc: "2.0", id, error: { code, message } });
    } finally {
      forget();
      watches.close();
    }
  }
}

/** The session that the request names, or a new one for a request that initializes one. */
async function sessionOf(sessions: Sessions, request: FastifyRequest, caller: McpCaller) {
  const id = request.headers["mcp-session-id"];
  if (typeof id === "string") return sessions.find(id, caller);
  const messages = [request.body].flat();
  if (messages.some((message) => isInitializeRequest(message))) return sessions.open(caller);
  const message = "Begin with the request `initialize`, then send the header Mcp-Session-Id of its answer.";
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
