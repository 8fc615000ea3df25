import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";
import { openConcurrencyQuota } from "../../kit/quota.ts";
import { originAllowed } from "../auth/origin.ts";
import type { Handler, Http } from "../http/http.ts";
import type { LiveStreams } from "../http/live_streams.ts";
import type { McpHandlerOptions } from "./mcp_handler.ts";

export interface McpRoutesOptions extends Omit<McpHandlerOptions, "places"> {
  readonly origins: readonly string[];
  readonly live: LiveStreams;
  /** The issuer of tokens, if it is a URL: clients find out there how to get one. */
  readonly issuer?: string | undefined;
}

/** The path of the metadata by which clients learn which tokens are accepted (RFC 9728). */
const METADATA_PATH = "/.well-known/oauth-protected-resource";
const MAX_SESSIONS_PER_ORG = 1_000;

/**
 * `/mcp`, the Model Context Protocol over streamable HTTP: sessions for clients up to 2025-11-25, requests that stand alone
 * for later ones. Call it after the other routes are added: its tools are routes.
 */
export function mcpRoutes(http: Http, context: Context, options: McpRoutesOptions): void {
  // Operators see the quota before there is a session.
  const places = openConcurrencyQuota(context, {
    name: "mcp_sessions",
    of: "MCP sessions on this server",
    limit: MAX_SESSIONS_PER_ORG,
  });
  // At the first request: the SDK takes memory and time that a server without assistants should not spend.
  let loading: Promise<Handler> | undefined;
  const handle: Handler = async (viewer, request, reply, audited) => {
    const { origin, host } = request.headers;
    if (!originAllowed(origin, options.origins, host ?? ""))
      throw new KhalaError(
        "origin_not_allowed",
        "Pages of this origin may not call /mcp. Add it to KHALA_ORIGINS.",
      );
    options.live.enter(viewer, reply);
    loading ??= import("./mcp_handler.ts").then(({ mcpHandler }) =>
      mcpHandler(http, context, { ...options, places }),
    );
    return (await loading)(viewer, request, reply, audited);
  };
  for (const method of ["POST", "GET", "DELETE"] as const)
    http.route(
      "mcp.use",
      method,
      "/mcp",
      handle,
      method === "GET" ? { exposeHeadRoute: false, waits: true } : {},
    );

  for (const path of [METADATA_PATH, `${METADATA_PATH}/mcp`])
    http.open("GET", path, async (request, reply) =>
      reply.header("Access-Control-Allow-Origin", "*").send({
        resource: `${request.protocol}://${request.host}/mcp`,
        resource_name: "Khala",
        bearer_methods_supported: ["header"],
        ...(options.issuer && URL.canParse(options.issuer) && { authorization_servers: [options.issuer] }),
      }),
    );
}
