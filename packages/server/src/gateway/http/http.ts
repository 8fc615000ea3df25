import { maxHeaderSize } from "node:http";
import { ERRORS, type ErrorCode, inexactInteger, inexactIntegerError, KhalaError } from "@khala/contracts";
import fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from "fastify";
import { requireScope, type Target } from "../../access/access.ts";
import { ACTIONS, type Action, type Rule } from "../../access/actions.ts";
import type { Audit, AuditedAction } from "../../access/audit.ts";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { openLimiter } from "../../kit/limiter.ts";
import { bearerToken } from "../auth/bearer.ts";
import { originAllowed } from "../auth/origin.ts";
import type { Verifier } from "../auth/verifier.ts";
import { type GatewayMetrics, isDenial } from "../metrics.ts";
import { endWithError } from "../sockets/handshake.ts";
import { openTraffic, type Traffic } from "../sockets/traffic.ts";
import { checkQuery } from "./read_request.ts";
import { watchBodies } from "./slow_body.ts";

export interface HttpOptions {
  readonly verifier: Verifier;
  readonly metrics: GatewayMetrics;
  /** Counters for operators. */
  readonly traffic?: Traffic;
  readonly maxBodyBytes: number;
  /** How many reads of an org are worked on at a time. */
  readonly readsPerOrg: number;
  /** Pages of these origins may call us; see originAllowed. */
  readonly origins: readonly string[];
  readonly audit: Audit;
  /** Recognises callers that need no token, such as the holder of the issuer key. */
  readonly recognise?: (request: FastifyRequest, action: Action) => Viewer | undefined;
}

type Method = "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";

/** A request whose caller may do the route's action. `audited` is what the audit log will say, where the action is audited. */
export type Handler = (
  viewer: Viewer,
  request: FastifyRequest,
  reply: FastifyReply,
  audited: Pick<AuditedAction, "resource" | "org">,
) => Promise<unknown>;

export interface RouteOptions {
  /** The target that the action's scope depends on; without it, the handler checks a scope that the resource names. */
  readonly target?: (request: FastifyRequest) => Target;
  /** Accepts a client that announces JSON and sends an empty body. */
  readonly bodyOptional?: true;
  /** The body is a stream of bytes of any type, and the token is checked before it is read. */
  readonly streamed?: true;
  /** The largest body, where it is not that of the other routes. The token is checked before it is read. */
  readonly bodyLimit?: number;
  /** A read that may wait before it answers: it is not counted among the reads of its org. */
  readonly waits?: true;
  /** Whether GET answers HEAD too: not where it would wait for the end of a stream. */
  readonly exposeHeadRoute?: false;
}

/** A route of the table; without an action everybody may call it. */
export interface Route {
  readonly method: Method;
  readonly path: string;
  readonly action: Action | undefined;
}

/** The HTTP side of the gateway, before any route is added. */
export interface Http {
  readonly app: FastifyInstance;
  /** Every route that was added. */
  readonly routes: readonly Route[];
  /**
   * Adds a route for callers who may do the action. Its path names the parameters of its query, as in `/chat{?limit,after}`;
   * others are refused, unless the handler does that itself: `{?*}`.
   */
  route(action: Action, method: Method, path: string, handler: Handler, options?: RouteOptions): void;
  /** Adds a route that everybody may call. */
  open(
    method: Method,
    path: string,
    handler: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>,
  ): void;
  /** Answers browsers that open a path which is no route, with the status 404; everything else gets the error as JSON. */
  fallback(page: (request: FastifyRequest, reply: FastifyReply) => unknown): void;
  /** The caller of a request; throws the denial when the token is not accepted, or does not allow the action. */
  admit(request: FastifyRequest, action: Action, target?: Target): Promise<Viewer>;
  /** Adds a route of a Fastify plugin to the table; its handlers call `admit`, and `audited` where the action is. */
  list(route: Route): void;
  /** Does the work, and records it in the audit log if the action is audited. */
  audited<Result>(
    viewer: Viewer,
    action: Action,
    request: FastifyRequest,
    work: (what: AuditedAction) => Promise<Result>,
  ): Promise<Result>;
}

/** Headers that pages of other origins may send. */
const ALLOWED_HEADERS =
  "authorization, content-type, idempotency-key, if-none-match, if-range, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, range, traceparent";

/** Headers of responses that those pages may read. */
const EXPOSED_HEADERS =
  "ETag, Khala-Stop, Mcp-Session-Id, Retry-After, Content-Disposition, Content-Range, Accept-Ranges, WWW-Authenticate";

const READS: ReadonlySet<Method> = new Set(["GET", "HEAD"]);

/** How long a request may take to arrive, its headers alone, and how often that is checked. Bodies that stop arriving are cut off before. */
const REQUEST_MS = 300_000;
const HEADERS_MS = 10_000;
const CHECK_MS = 5_000;

/** The error of a request that Node could not read. */
function unreadable(code: string): KhalaError {
  if (code === "HPE_HEADER_OVERFLOW") {
    const message = `The headers of a request may have at most ${maxHeaderSize} bytes. Send fewer or shorter ones.`;
    return new KhalaError("payload_too_large", message);
  }
  const known = code === "ERR_HTTP_REQUEST_TIMEOUT" ? "idle_timeout" : "invalid_request";
  return new KhalaError(known, `The request cannot be read as HTTP (${code}).`);
}

/** Opens the HTTP server's skeleton: bounded bodies, one shape of error, everything counted. */
export function openHttp(context: Context, options: HttpOptions): Http {
  const { verifier, metrics, traffic = openTraffic(context.clock), maxBodyBytes, origins } = options;
  const app = fastify({
    bodyLimit: maxBodyBytes,
    forceCloseConnections: "idle",
    requestTimeout: REQUEST_MS,
    http: { headersTimeout: HEADERS_MS, connectionsCheckingInterval: CHECK_MS },
    routerOptions: { maxParamLength: 600 },
    frameworkErrors: (error, _request, reply) => answer(error, reply),
    clientErrorHandler(error, stream) {
      if (error.code === "ECONNRESET" || stream.destroyed) return;
      endWithError(stream, unreadable(error.code));
    },
  });
  // Everything is JSON: a text/plain body would be refused later with a misleading error.
  app.removeContentTypeParser(["text/plain", "application/json"]);
  const parseJson = app.getDefaultJsonParser("error", "error");
  app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) =>
    parseJson(request, body as string, (error, value) => {
      if (error) return done(unreadableBody(body as string), undefined);
      const rounded = inexactInteger(body as string);
      done(rounded === undefined ? null : inexactIntegerError(rounded), value);
    }),
  );

  const bodies = watchBodies(context.clock);
  app.addHook("onClose", async () => bodies.stop());

  app.addHook("onRequest", async (request, reply) => {
    bodies.watch(request.raw, reply.raw);
    const { origin, host } = request.headers;
    if (!origin || !originAllowed(origin, origins, host ?? "")) return;
    reply
      .header("Access-Control-Allow-Origin", origin)
      .header("Vary", "Origin")
      .header("Access-Control-Expose-Headers", EXPOSED_HEADERS);
    // Routes with a preflight of their own answer it.
    if (request.method !== "OPTIONS" || !request.is404) return;
    reply.header("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE");
    reply.header("Access-Control-Max-Age", "600");
    reply.header("Access-Control-Allow-Headers", ALLOWED_HEADERS);
    return reply.code(204).send();
  });

  app.addHook("onResponse", async (request, reply) => {
    const route = request.routeOptions.url ?? "unmatched";
    metrics.requests.record(reply.elapsedTime, {
      http_route: route,
      http_request_method: request.method,
      http_response_status_code: String(reply.statusCode),
    });
  });

  let fallback: ((request: FastifyRequest, reply: FastifyReply) => unknown) | undefined;
  app.setNotFoundHandler((request, reply) => {
    const isBrowser = request.method === "GET" && request.headers.accept?.includes("text/html");
    if (fallback && isBrowser) return fallback(request, reply.code(404));
    const path = request.url.split("?")[0]!.slice(0, 200);
    throw new KhalaError("not_found", `There is no route ${request.method} ${path}.`);
  });

  app.setErrorHandler((error: FastifyError, _request, reply) => answer(error, reply));

  function answer(error: FastifyError, reply: FastifyReply): void {
    const known = asKhalaError(error, reply.request?.routeOptions?.bodyLimit ?? maxBodyBytes);
    if (known.code === "internal") context.log.error({ err: error }, "a request failed");
    traffic.refused(known.code);
    if (isDenial(known.code)) metrics.denials.add(1, { code: known.code });
    const { retry_after_ms } = known.details;
    if (retry_after_ms !== undefined) reply.header("Retry-After", Math.ceil(retry_after_ms / 1_000));
    if (!reply.hasHeader("Cache-Control")) reply.header("Cache-Control", "no-store");
    if (known.meaning.status === 401) reply.header("WWW-Authenticate", challengeOf(reply.request));
    reply.code(known.meaning.status).send({ error: known });
  }

  const routes: Route[] = [];
  // Without it one org that repeats large reads would have every connection of the database, and the others would queue behind it.
  const reads = openLimiter(options.readsPerOrg);
  /** The function that gives back the place of each read that runs. */
  const reading = new WeakMap<FastifyRequest, () => void>();
  // A place is held until the answer is made: a client may take long to receive it.
  app.addHook("onSend", (request, _reply, payload, done) => {
    reading.get(request)?.();
    done(null, payload);
  });

  /** Waits for a place among the reads of the org. False if the client has left meanwhile. */
  async function beginRead(org: string, request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
    const leave = await reads.enter(org);
    if (reply.raw.closed) leave();
    else {
      reading.set(request, leave);
      // Where nothing is sent.
      reply.raw.once("close", leave);
    }
    return !reply.raw.closed;
  }

  async function admit(request: FastifyRequest, action: Action, target?: Target): Promise<Viewer> {
    const viewer =
      options.recognise?.(request, action) ?? (await verifier.verify(bearerToken(request.headers)));
    requireScope(viewer, action, target);
    return viewer;
  }

  async function audited<Result>(
    viewer: Viewer,
    action: Action,
    request: FastifyRequest,
    work: (what: AuditedAction) => Promise<Result>,
  ): Promise<Result> {
    const rule: Rule = ACTIONS[action];
    const what = { viewer, action, resource: pathOf(request), address: request.ip };
    return rule.audited ? options.audit.around(what, work) : work(what);
  }

  return {
    app,
    routes,
    admit,
    audited,
    fallback(page) {
      fallback = page;
    },
    list: (route) => void routes.push(route),
    open(method, path, handler) {
      routes.push({ method, path, action: undefined });
      app.route({ method, url: path, handler });
    },
    route(action, method, template, handler, { target, bodyOptional, streamed, waits, ...rest } = {}) {
      const [path, names] = template.split(/\{\?|\}/) as [string, string?];
      const parameters = names?.split(",") ?? [];
      routes.push({ method, path, action });
      const admitted = new WeakMap<FastifyRequest, Viewer>();
      const early = streamed || rest.bodyLimit !== undefined;
      const route: Parameters<FastifyInstance["route"]>[0] = {
        method,
        url: path,
        ...rest,
        ...(bodyOptional && { onRequest: dropEmptyBody }),
        ...(early && {
          async onRequest(request: FastifyRequest) {
            admitted.set(request, await admit(request, action, target?.(request)));
          },
        }),
        async handler(request, reply) {
          const viewer = admitted.get(request) ?? (await admit(request, action, target?.(request)));
          if (names !== "*") checkQuery(request.query, parameters);
          // The answer is for this caller, now. A handler may replace the header.
          reply.header("Cache-Control", "no-store");
          if (!waits && READS.has(method) && !(await beginRead(viewer.org, request, reply))) return reply;
          return audited(viewer, action, request, (what) => handler(viewer, request, reply, what));
        },
      };
      if (!streamed) return void app.route(route);
      app.register(async (scope) => {
        scope.removeAllContentTypeParsers();
        scope.addContentTypeParser("*", (_request, body, done) => done(null, body));
        scope.route(route);
      });
    },
  };
}

async function dropEmptyBody({ headers }: FastifyRequest): Promise<void> {
  const { "content-length": length = "0", "transfer-encoding": chunked } = headers;
  if (length === "0" && chunked === undefined) delete headers["content-type"];
}

function pathOf({ url }: FastifyRequest): string {
  return url.split("?")[0]!.slice(0, 600);
}

/** The header of a 401 answer; clients of MCP look for the metadata in it (RFC 9728). */
function challengeOf(request: FastifyRequest | undefined): string {
  if (request?.routeOptions?.url !== "/mcp") return "Bearer";
  return `Bearer resource_metadata="${request.protocol}://${request.host}/.well-known/oauth-protected-resource/mcp"`;
}

/** The error of a body that the parser has refused. */
function unreadableBody(body: string): KhalaError {
  try {
    JSON.parse(body);
  } catch (error) {
    const problem = body === "" ? "it is empty" : (error as Error).message.slice(0, 200);
    return new KhalaError("invalid_request", `The body is not valid JSON: ${problem}.`, { field: "body" });
  }
  // Objects with such a key change others when they are copied, so no part of the server gets one.
  const message = "A key of the body is __proto__, or prototype in constructor. Use another name.";
  return new KhalaError("invalid_request", message, { field: "__proto__" });
}

function asKhalaError(
  error: Error & { code?: string; statusCode?: number },
  maxBodyBytes: number,
): KhalaError {
  if (error instanceof KhalaError) return error;
  const { code = "", statusCode = 500 } = error;
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return new KhalaError(
      "payload_too_large",
      `A body may have at most ${maxBodyBytes} bytes. Send less data per request.`,
    );
  }
  if (code === "FST_ERR_MAX_PARAM_LENGTH")
    return new KhalaError("not_found", "A part of the path is too long. Shorten the name or id.");
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE") {
    return new KhalaError("invalid_request", "Send the body as application/json.", { field: "content-type" });
  }
  if (statusCode >= 400 && statusCode < 500) {
    const matching = (Object.keys(ERRORS) as ErrorCode[]).find((name) => ERRORS[name].status === statusCode);
    return new KhalaError(matching ?? "invalid_request", `The request cannot be read: ${error.message}`);
  }
  return new KhalaError("internal", "Internal error: the server's log has the details. Try again.");
}

/** The address of a server, and the setting that names the port. */
export interface ListenOptions {
  readonly host: string;
  readonly port: number;
  readonly setting: string;
}

/** The address of a server, as one would type it. */
export function httpUrl(host: string, port: number): string {
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}

/** The error of a failed listen: a port in use gets a message that says what to do. */
export function listenError(error: unknown, { host, port, setting }: ListenOptions): unknown {
  if ((error as { code?: string }).code !== "EADDRINUSE") return error;
  return new Error(
    `Port ${port} on ${host} is in use. Stop the process that listens there, or set ${setting} (0 picks a free one).`,
    { cause: error },
  );
}
