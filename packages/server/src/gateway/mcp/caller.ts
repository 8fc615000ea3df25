import { KhalaError } from "@khala/contracts";
import type { FastifyInstance } from "fastify";
import type { Viewer } from "../../access/viewer.ts";

/** The caller of the MCP request being served. */
export interface McpCaller {
  readonly viewer: Viewer;
  /** The header that the caller sent. */
  readonly authorization: string;
  readonly address: string;
}

/** A request to a route of this server. */
export interface ApiRequest {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly body?: unknown;
}

/** How a route answered. */
export interface ApiResponse {
  readonly status: number;
  /** The JSON; null where there is no body. */
  readonly body: unknown;
}

/** Calls a route as the caller would: the same checks of rights, fields and quotas, and the same audit log. */
export type Api = (caller: McpCaller, request: ApiRequest) => Promise<ApiResponse>;

/** The routes of this process, without a connection. */
export function localApi(app: FastifyInstance): Api {
  return async ({ authorization, address }, { method, path, body }) => {
    // A URL resolves such a segment, and the request would reach another route.
    if (path.split(/[/?]/).some((segment) => segment === "." || segment === ".."))
      return { status: 404, body: { error: new KhalaError("not_found", `There is no route ${path}.`) } };
    const response = await app.inject({
      method: method as "GET",
      url: path,
      headers: { authorization },
      remoteAddress: address,
      ...(body !== undefined && { payload: body as object }),
    });
    return { status: response.statusCode, body: response.payload === "" ? null : response.json() };
  };
}

/** The error of a route, as one text. */
export function errorText({ status, body }: ApiResponse): string {
  const { code, message, field } = (body as { error?: { code?: string; message?: string; field?: string } })
    ?.error ?? { message: `The request was answered with ${status}.` };
  return `${message}${code ? ` (${code}${field ? `, field ${field}` : ""})` : ""}`;
}
