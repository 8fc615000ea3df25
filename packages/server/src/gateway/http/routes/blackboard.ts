import { KhalaError, SCOPES } from "@khala/contracts";
import { SpanKind } from "@opentelemetry/api";
import type { FastifyReply, FastifyRequest } from "fastify";
import { AGENT_NAME } from "../../../blackboard/model/names.ts";
import type { BlackboardPlane, Caller } from "../../../blackboard/plane.ts";
import type { Context } from "../../../kit/context.ts";
import { orgAttributes, traceContext, traceparent } from "../../../kit/telemetry.ts";
import { hasScope, requireScope } from "../../auth/claims.ts";
import {
  asSentAlone,
  isId,
  readClaim,
  readCorrelationId,
  readDeadLetterQuery,
  readDecision,
  readDrafts,
  readRecent,
  readReplay,
  readReplayAll,
  readSettlement,
} from "../blackboard_request.ts";
import type { Http } from "../http.ts";

/** Artifacts, agents, correlations and approvals: `/blackboard/v1`. */
export function blackboardRoutes(http: Http, context: Context, board: BlackboardPlane): void {
  const { app } = http;

  app.post("/blackboard/v1/artifacts", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    const { drafts, alone } = readDrafts(request.body);
    const parent = traceContext(request.headers.traceparent as string | undefined);
    const span = context.telemetry.tracer.startSpan(
      "publish artifacts",
      { kind: SpanKind.SERVER, attributes: orgAttributes(who.org) },
      parent,
    );
    try {
      const trace = traceparent(span);
      const artifacts = await board.publish({ ...who, ...(trace && { trace }) }, drafts);
      return reply.code(201).send({ artifacts });
    } catch (error) {
      throw alone ? asSentAlone(error) : error;
    } finally {
      span.end();
    }
  });

  app.get("/blackboard/v1/artifacts", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    const artifacts = await board.recent(who, readRecent(request.query));
    return reply.header("Cache-Control", "no-store").send({ artifacts });
  });

  app.get("/blackboard/v1/artifacts/:id", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    const id = param(request, "id");
    const artifact = isId(id) ? await board.get(who, id) : undefined;
    return reply.header("Cache-Control", "no-store").send(artifact ?? missing("artifact", id));
  });

  app.get("/blackboard/v1/agents", async (request, reply) => {
    await callerOf(http, request, SCOPES.blackboardRead);
    return reply.header("Cache-Control", "no-store").send({ agents: await board.agents() });
  });

  app.get("/blackboard/v1/lag", async (request, reply) => {
    await callerOf(http, request, SCOPES.blackboardRead);
    return reply.header("Cache-Control", "no-store").send({ partitions: await board.lag() });
  });

  // An agent works for every org: who stops it operates the whole.
  app.post("/blackboard/v1/agents/:agent/pause", BODY_OPTIONAL, async (request, reply) => {
    await callerOf(http, request, SCOPES.ops);
    await board.pause(agentOf(request));
    return reply.code(204).send();
  });

  app.post("/blackboard/v1/agents/:agent/resume", BODY_OPTIONAL, async (request, reply) => {
    await callerOf(http, request, SCOPES.ops);
    await board.resume(agentOf(request));
    return reply.code(204).send();
  });

  app.post("/blackboard/v1/agents/:agent/cancel", BODY_OPTIONAL, async (request, reply) => {
    await callerOf(http, request, SCOPES.ops);
    await board.cancelAgent(agentOf(request));
    return reply.code(204).send();
  });

  app.get("/blackboard/v1/correlations/:correlation_id", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    const id = correlationOf(request);
    const state = (await board.correlation(who, id)) ?? missing("correlation", id);
    return reply.header("Cache-Control", "no-store").send(state);
  });

  app.post("/blackboard/v1/correlations/:correlation_id/pause", BODY_OPTIONAL, async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    await board.pauseCorrelation(who, correlationOf(request));
    return reply.code(204).send();
  });

  app.post("/blackboard/v1/correlations/:correlation_id/cancel", BODY_OPTIONAL, async (request, reply) => {
    await board.cancel(await callerOf(http, request, SCOPES.blackboardWrite), correlationOf(request));
    return reply.code(204).send();
  });

  app.post("/blackboard/v1/correlations/:correlation_id/resume", BODY_OPTIONAL, async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    const replayed = await board.resumeCorrelation(who, correlationOf(request));
    return reply.code(202).send({ replayed });
  });

  app.get("/blackboard/v1/approvals", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    return reply.header("Cache-Control", "no-store").send({ approvals: await board.approvals(who) });
  });

  app.post("/blackboard/v1/approvals/:id", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    const id = param(request, "id");
    const decision = readDecision(request.body);
    if (!isId(id)) missing("approval", id);
    await board.decide(who, id, decision);
    return reply.code(204).send();
  });
}

/** For routes that need no body: a client that announces JSON, and then sends none, is served too. */
const BODY_OPTIONAL = {
  async onRequest({ headers }: FastifyRequest) {
    const { "content-length": length = "0", "transfer-encoding": chunked } = headers;
    if (length === "0" && chunked === undefined) delete headers["content-type"];
  },
};

/** The caller, if its token has the scope. */
async function callerOf(http: Http, request: FastifyRequest, scope: string): Promise<Caller> {
  const viewer = await http.viewer(request);
  requireScope(viewer, scope);
  return { org: viewer.org, subject: viewer.subject, operates: hasScope(viewer, SCOPES.ops) };
}

/** The agent that the path names; what cannot be the name of one is not there. */
function agentOf(request: FastifyRequest): string {
  const name = param(request, "agent");
  return AGENT_NAME.test(name) ? name : missing("agent", name);
}

/** A part of the path. */
function param(request: FastifyRequest, name: string): string {
  return (request.params as Record<string, string>)[name]!;
}

/** The same error for what does not exist and what the caller may not see. */
function missing(what: string, name: string): never {
  const quoted = JSON.stringify(name.length > 100 ? `${name.slice(0, 100)}…` : name);
  throw new KhalaError("not_found", `There is no ${what} ${quoted}, or it is not yours to see.`);
}

function correlationOf(request: FastifyRequest): string {
  return readCorrelationId(param(request, "correlation_id"));
}

/** Dead letters of an agent, and their replay: `/blackboard/v1/dead-letters`. */
export function deadLetterRoutes(http: Http, board: BlackboardPlane): void {
  const { app } = http;

  app.get("/blackboard/v1/dead-letters/:agent", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    const query = readDeadLetterQuery(request.query);
    const { deadLetters, next } = await board.deadLetters(who, agentOf(request), query);
    const page = { dead_letters: deadLetters, ...(next !== undefined && { next }) };
    return reply.header("Cache-Control", "no-store").send(page);
  });

  app.get("/blackboard/v1/dead-letters/:agent/:id", async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardRead);
    const id = param(request, "id");
    const found = isId(id) ? await board.deadLetter(who, agentOf(request), id) : undefined;
    return reply.header("Cache-Control", "no-store").send(found ?? missing("dead letter", id));
  });

  app.post("/blackboard/v1/dead-letters/:agent/:id/replay", BODY_OPTIONAL, async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    const id = param(request, "id");
    const edit = readReplay(request.body);
    if (!isId(id)) missing("dead letter", id);
    return reply.code(202).send(await board.replay(who, agentOf(request), id, edit));
  });

  app.post("/blackboard/v1/dead-letters/:agent/replay", BODY_OPTIONAL, async (request, reply) => {
    const who = await callerOf(http, request, SCOPES.blackboardWrite);
    const which = readReplayAll(request.body);
    return reply.code(202).send(await board.replayAll(who, agentOf(request), which));
  });
}

/** Claim, heartbeat and settle, for agents in other languages. Requests that wait end when `signal` aborts. */
export function workerRoutes(http: Http, board: BlackboardPlane, signal: AbortSignal): void {
  const { app } = http;

  app.post("/blackboard/v1/agents/:agent/claim", async (request, reply) => {
    const org = await orgOf(request);
    const ask = readClaim(request.body);
    const over = AbortSignal.any([signal, gone(reply)]);
    return { claims: await board.claim(agentOf(request), { ...ask, org }, over) };
  });

  app.post("/blackboard/v1/claims/:claim_id/heartbeat", BODY_OPTIONAL, async (request) => {
    const org = await orgOf(request);
    return board.heartbeat(claimOf(request), org);
  });

  app.post("/blackboard/v1/claims/:claim_id/settle", BODY_OPTIONAL, async (request) => {
    const org = await orgOf(request);
    const settlement = readSettlement(request.body);
    return board.settle(claimOf(request), settlement, org);
  });

  /** A worker has the tasks of its org; one that operates has those of all. */
  async function orgOf(request: FastifyRequest): Promise<string | undefined> {
    const viewer = await http.viewer(request);
    requireScope(viewer, SCOPES.blackboardWrite);
    return hasScope(viewer, SCOPES.ops) ? undefined : viewer.org;
  }
}

function claimOf(request: FastifyRequest): string {
  const id = param(request, "claim_id");
  return isId(id) ? id : missing("claim", id);
}

/** Aborts when the worker hangs up before it is answered. */
function gone(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}
