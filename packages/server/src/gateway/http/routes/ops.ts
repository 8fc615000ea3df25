import type { JsonObject } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import type {
  AboutJson,
  AppJson,
  OrgConversationJson,
  QuotaUseJson,
  SettingJson,
  SpanJson,
  TraceSummaryJson,
} from "@khala/contracts/ops/v1";
import type { FastifyRequest } from "fastify";
import { may, notFound, orgOf } from "../../../access/access.ts";
import type { Audit } from "../../../access/audit.ts";
import type { BlackboardPlane } from "../../../blackboard/plane.ts";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import type { Quotas } from "../../../kit/quota.ts";
import type { EndedSpan, SpanRing } from "../../../kit/span_ring.ts";
import { mayMint } from "../../auth/origin.ts";
import type { History } from "../../ops/history.ts";
import type { Overview } from "../../ops/overview.ts";
import { traceName } from "../../ops/trace_name.ts";
import type { Sockets } from "../../sockets/sockets.ts";
import type { Traffic } from "../../sockets/traffic.ts";
import type { Http } from "../http.ts";
import { checkQuery, pageAfter, queryOf, readAfter, readLimit, readText } from "../read_request.ts";
import type { Parity } from "./ops_sync.ts";

/** Sources of the operator API. */
export interface OpsSources {
  readonly overview: Overview;
  /** The load of the last hour. */
  readonly history: History;
  /** The app of this server: its topics, streams and agents. */
  readonly app: AppJson;
  /** The part of `about` that is the same for every caller. */
  readonly about: Pick<AboutJson, "version" | "backends" | "trace_url">;
  readonly settings: () => SettingJson[];
  /** The last spans; undefined where they are not kept. */
  readonly spans: SpanRing | undefined;
  /** How the mirror compares. */
  readonly parity: Parity;
}

export interface OpsRouteOptions extends OpsSources {
  readonly dev: boolean;
  /** Scopes of tokens that this server mints for local callers; undefined when it mints none. */
  readonly mintedScopes: readonly string[] | undefined;
  readonly traffic: Traffic;
  readonly sockets: Pick<Sockets, "list">;
}

const LISTED_SOCKETS = 1_000;
const LISTED_ORGS = 1_000;
const TRACE_ID = /^[0-9a-f]{32}$/;

/** `/ops/v1`: the state of the server. ops_sync.ts has the routes of the sync plane. */
export function opsRoutes(http: Http, options: OpsRouteOptions): void {
  const { overview, traffic, spans } = options;

  http.open("GET", "/ops/v1/about", async (request, reply) => {
    checkQuery(request.query, []);
    const scopes = mayMint(request) ? options.mintedScopes : undefined;
    const about: AboutJson = {
      ...options.about,
      dev: options.dev,
      mints: scopes !== undefined,
      scopes: [...(scopes ?? [])],
    };
    return reply.header("Cache-Control", "no-store").send(about);
  });

  http.route("server.observe", "GET", "/ops/v1/overview", async () => overview.get());

  http.route("server.observe", "GET", "/ops/v1/overview/history", async () => options.history.read());

  http.route("server.observe", "GET", "/ops/v1/app", async () => options.app);

  http.route("org.inspect", "GET", "/ops/v1/sockets", async ({ org }) => {
    const sockets = options.sockets.list(org, LISTED_SOCKETS);
    return { sockets, closes: traffic.closes(org) };
  });

  http.route("server.observe", "GET", "/ops/v1/errors", async () => ({ errors: traffic.errors() }));

  http.route("server.inspect", "GET", "/ops/v1/config", async () => ({ settings: options.settings() }));

  http.route("org.inspect", "GET", "/ops/v1/traces{?limit,correlation_id}", async ({ org }, request) => {
    const query = queryOf(request);
    const correlationId = readText(query.correlation_id, "correlation_id", 256);
    const traces = kept(spans).newest(org, readLimit(query.limit), correlationId).map(summaryOf);
    return { traces };
  });

  http.route("org.inspect", "GET", "/ops/v1/traces/:trace_id", async ({ org }, request) => {
    const { trace_id } = request.params as { trace_id: string };
    const found = TRACE_ID.test(trace_id) ? kept(spans).trace(org, trace_id) : undefined;
    if (!found)
      throw new KhalaError("not_found", "The trace does not exist. Only the latest traces are kept.");
    return { trace_id, name: traceName(found), spans: found.map(spanJson) };
  });
}

function kept(spans: SpanRing | undefined): SpanRing {
  if (spans) return spans;
  throw new KhalaError(
    "not_found",
    "This server keeps no traces. Set OTEL_EXPORTER_OTLP_ENDPOINT to send them to a collector, and KHALA_TRACE_URL to link to it.",
  );
}

function summaryOf(spans: readonly EndedSpan[]): TraceSummaryJson {
  const first = spans.reduce((a, b) => (b.startedAt < a.startedAt ? b : a));
  const end = Math.max(...spans.map(({ startedAt, durationMs }) => startedAt + durationMs));
  return {
    trace_id: first.traceId,
    name: traceName(spans),
    started_at: new Date(first.startedAt).toISOString(),
    duration_ms: Math.round((end - first.startedAt) * 100) / 100,
    spans: spans.length,
    status: spans.some(({ failed }) => failed) ? "error" : "ok",
  };
}

function spanJson(span: EndedSpan): SpanJson {
  return {
    span_id: span.spanId,
    ...(span.parentId !== undefined && { parent_id: span.parentId }),
    name: span.name,
    started_at: new Date(span.startedAt).toISOString(),
    duration_ms: Math.round(span.durationMs * 100) / 100,
    attributes: span.attributes as JsonObject,
    status: span.failed ? "error" : "ok",
    ...(span.message && { message: span.message }),
  };
}

/** `GET /ops/v1/conversations`: the org's conversations with owner and state, never their content. */
export function opsConversationRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("org.inspect", "GET", "/ops/v1/conversations{?limit,after}", async ({ org }, request) => {
    const { limit, after } = queryOf(request);
    const query = { limit: readLimit(limit), after: readAfter(after) };
    const { conversations: found, next } = await conversations.listOfOrg(org, query);
    const listed = found.map(
      ({ convId, owner, updatedAt, runStatus }): OrgConversationJson => ({
        conv_id: convId,
        subject: owner,
        updated_at: updatedAt,
        run_status: runStatus,
        sockets: conversations.attachedTo({ org, convId }),
      }),
    );
    return { conversations: listed, ...pageAfter(next) };
  });
}

/** `GET /ops/v1/failed-runs`: the exceptions that ended runs of the org. End users see their ids. */
export function opsFailedRunRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("org.inspect", "GET", "/ops/v1/failed-runs{?limit,after,error_id}", async ({ org }, request) => {
    const { limit, after, error_id } = queryOf(request);
    const query = {
      limit: readLimit(limit),
      after: readAfter(after),
      errorId: readText(error_id, "error_id", 100),
    };
    const { runs, next } = await conversations.failedRuns(org, query);
    return { runs, ...pageAfter(next) };
  });
}

/** `GET /ops/v1/audit`: the audit log of the org, newest first. */
export function opsAuditRoutes(http: Http, audit: Audit): void {
  http.route("audit.read", "GET", "/ops/v1/audit{?limit,after,action,subject}", async (viewer, request) => {
    const query = queryOf(request);
    const limit = readLimit(query.limit);
    const before = readAfter(query.after) || undefined;
    if (before !== undefined && !/^\d{1,18}$/.test(before))
      throw new KhalaError("invalid_request", "after must be the unchanged `next` of the previous page.", {
        field: "after",
      });
    const action = readText(query.action, "action", 100);
    const subject = readText(query.subject, "subject", 256);
    const entries = await audit.read(viewer, { action, subject, before, limit });
    const next = entries.length === limit ? entries.at(-1)!.id : undefined;
    return { entries, ...pageAfter(next) };
  });
}

/** `/ops/v1/set-aside`: what the board could not process for good. */
export function opsSetAsideRoutes(
  http: Http,
  blackboard: Pick<BlackboardPlane, "setAside" | "retrySetAside" | "discardSetAside">,
): void {
  const idOf = (request: FastifyRequest) => (request.params as { id: string }).id;

  http.route("set_aside.read", "GET", "/ops/v1/set-aside{?limit,after}", async (viewer, request) => {
    const query = queryOf(request);
    const limit = readLimit(query.limit);
    const items = await blackboard.setAside(viewer, { after: readAfter(query.after), limit });
    const next = items.length === limit ? items.at(-1)!.id : undefined;
    return { items, ...pageAfter(next) };
  });

  const retry = "/ops/v1/set-aside/:id/retry";
  http.route("set_aside.control", "POST", retry, async (viewer, request, reply) => {
    await blackboard.retrySetAside(viewer, idOf(request));
    return reply.code(204).send();
  });

  http.route("set_aside.control", "DELETE", "/ops/v1/set-aside/:id", async (viewer, request, reply) => {
    await blackboard.discardSetAside(viewer, idOf(request));
    return reply.code(204).send();
  });
}

/** `GET /ops/v1/quotas`: what an org uses of its quotas; of every org for the platform, unless it names one. */
export function opsQuotaRoutes(http: Http, quotas: Quotas): void {
  http.route("quota.read", "GET", "/ops/v1/quotas{?org}", async (viewer, request) => {
    const asked = readText(queryOf(request).org, "org", 256);
    if (asked !== undefined && !may(viewer, "quota.read", { org: asked })) throw notFound("org", asked);
    const org = asked ?? orgOf(viewer, "quota.read");
    const uses = org === undefined ? await quotas.ofAll(LISTED_ORGS) : await quotas.of(org);
    const listed = uses.map(
      ({ org: org_id, name, of, limit, inUse, rejected }): QuotaUseJson => ({
        org_id,
        name,
        about: of,
        limit,
        ...(inUse !== undefined && { in_use: inUse }),
        rejected,
      }),
    );
    return { quotas: listed };
  });
}
