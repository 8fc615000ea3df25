import { toJson } from "@bufbuild/protobuf";
import { PostEventsRequestSchema } from "@khala/contracts/conversation/v1";
import type { FastifyReply, FastifyRequest } from "fastify";
import { notFound, type Target } from "../../../access/access.ts";
import type { Viewer } from "../../../access/viewer.ts";
import { AGENT_NAME } from "../../../blackboard/model/names.ts";
import type { BlackboardPlane } from "../../../blackboard/plane.ts";
import type { StoredBytes } from "../../../database/stored_bytes.ts";
import type { Context } from "../../../kit/context.ts";
import { httpSpan, inServerSpan } from "../../../kit/telemetry.ts";
import { type Revocations, tokenRevoked, whenRevoked } from "../../auth/revocations.ts";
import {
  asSentAlone,
  isId,
  readArtifactQuery,
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
import type { Handler, Http } from "../http.ts";
import { bodyBytes, readMessage } from "../read_request.ts";

/** Artifacts, agents, correlations and approvals: `/blackboard/v1`. */
export function blackboardRoutes(
  http: Http,
  context: Context,
  board: BlackboardPlane,
  stored?: StoredBytes,
): void {
  http.route("artifact.publish", "POST", "/blackboard/v1/artifacts", async (who, request, reply) => {
    const { drafts, alone } = readDrafts(request.body);
    const parent = request.headers.traceparent as string | undefined;
    const span = { ...httpSpan("POST", "/blackboard/v1/artifacts", who.org), parent };
    return inServerSpan(context.telemetry, span, async (traced) => {
      stored?.take(who.org, "blackboard", bodyBytes(request));
      const artifacts = await board.publish({ ...who, ...traced }, drafts).catch((error) => {
        throw alone ? asSentAlone(error) : error;
      });
      return reply.code(201).send({ artifacts });
    });
  });

  http.route(
    "artifact.read",
    "GET",
    "/blackboard/v1/artifacts{?type,correlation_id,limit}",
    async (who, request) => {
      return { artifacts: await board.recent(who, readRecent(request.query)) };
    },
  );

  http.route("artifact.read", "GET", "/blackboard/v1/artifacts/:id{?org_id}", async (who, request) => {
    const id = param(request, "id");
    const { org_id } = readArtifactQuery(request.query);
    const artifact = isId(id) ? await board.get(who, id, org_id) : undefined;
    return artifact ?? missing("artifact", id);
  });

  http.route("board.read", "GET", "/blackboard/v1/agents", async (who) => ({
    agents: await board.agents(who),
  }));

  http.route("board.read", "GET", "/blackboard/v1/lag", async (who) => ({
    partitions: await board.lag(who),
  }));

  /** A route without a body in either direction. */
  function command(
    action: "agent.control" | "correlation.control",
    path: string,
    work: (who: Viewer, request: FastifyRequest) => Promise<void>,
  ): void {
    const handler: Handler = async (who, request, reply) => {
      await work(who, request);
      return reply.code(204).send();
    };
    http.route(action, "POST", path, handler, { bodyOptional: true });
  }

  // An agent works for every org: who stops it operates the whole.
  command("agent.control", "/blackboard/v1/agents/:agent/pause", (_who, request) =>
    board.pause(agentOf(request)),
  );

  command("agent.control", "/blackboard/v1/agents/:agent/resume", (_who, request) =>
    board.resume(agentOf(request)),
  );

  command("agent.control", "/blackboard/v1/agents/:agent/cancel", (_who, request) =>
    board.cancelAgent(agentOf(request)),
  );

  http.route(
    "correlation.read",
    "GET",
    "/blackboard/v1/correlations/:correlation_id",
    async (who, request) => {
      const id = correlationOf(request);
      return (await board.correlation(who, id)) ?? missing("correlation", id);
    },
  );

  command("correlation.control", "/blackboard/v1/correlations/:correlation_id/pause", (who, request) =>
    board.pauseCorrelation(who, correlationOf(request)),
  );

  command("correlation.control", "/blackboard/v1/correlations/:correlation_id/cancel", (who, request) =>
    board.cancel(who, correlationOf(request)),
  );

  http.route(
    "correlation.control",
    "POST",
    "/blackboard/v1/correlations/:correlation_id/resume",
    async (who, request, reply) => {
      const replayed = await board.resumeCorrelation(who, correlationOf(request));
      return reply.code(202).send({ replayed });
    },
    { bodyOptional: true },
  );

  http.route("approval.read", "GET", "/blackboard/v1/approvals", async (who) => ({
    approvals: await board.approvals(who),
  }));

  http.route("approval.decide", "POST", "/blackboard/v1/approvals/:id", async (who, request, reply) => {
    const id = param(request, "id");
    const decision = readDecision(request.body);
    if (!isId(id)) missing("approval", id);
    await board.decide(who, id, decision);
    return reply.code(204).send();
  });
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
  throw notFound(what, name);
}

function correlationOf(request: FastifyRequest): string {
  return readCorrelationId(param(request, "correlation_id"));
}

/** Dead letters of an agent, and their replay: `/blackboard/v1/dead-letters`. */
export function deadLetterRoutes(http: Http, board: BlackboardPlane): void {
  http.route(
    "dead_letter.read",
    "GET",
    "/blackboard/v1/dead-letters/:agent{?limit,after,correlation_id}",
    async (who, request) => {
      const query = readDeadLetterQuery(request.query);
      const { deadLetters, next } = await board.deadLetters(who, agentOf(request), query);
      const page = { dead_letters: deadLetters, ...(next !== undefined && { next }) };
      return page;
    },
  );

  http.route("dead_letter.read", "GET", "/blackboard/v1/dead-letters/:agent/:id", async (who, request) => {
    const id = param(request, "id");
    const found = isId(id) ? await board.deadLetter(who, agentOf(request), id) : undefined;
    return found ?? missing("dead letter", id);
  });

  http.route(
    "dead_letter.replay",
    "POST",
    "/blackboard/v1/dead-letters/:agent/:id/replay",
    async (who, request, reply) => {
      const id = param(request, "id");
      const edit = readReplay(request.body);
      if (!isId(id)) missing("dead letter", id);
      return reply.code(202).send(await board.replay(who, agentOf(request), id, edit));
    },
    { bodyOptional: true },
  );

  http.route(
    "dead_letter.replay",
    "POST",
    "/blackboard/v1/dead-letters/:agent/replay",
    async (who, request, reply) => {
      const which = readReplayAll(request.body);
      return reply.code(202).send(await board.replayAll(who, agentOf(request), which));
    },
    { bodyOptional: true },
  );
}

/** Claim, heartbeat and settle, for agents in other languages. Requests that wait end when `signal` aborts. */
export function workerRoutes(
  http: Http,
  board: BlackboardPlane,
  revocations: Revocations,
  signal: AbortSignal,
): void {
  http.route(
    "task.work",
    "POST",
    "/blackboard/v1/agents/:agent/claim",
    async (who, request, reply) => {
      const ask = readClaim(request.body);
      const revoked = new AbortController();
      const unsubscribe = whenRevoked(revocations, who, () => revoked.abort());
      const over = AbortSignal.any([signal, gone(reply), revoked.signal]);
      try {
        const claims = await board.claim(who, agentOf(request), ask, over);
        if (revoked.signal.aborted) throw tokenRevoked();
        return { claims };
      } finally {
        unsubscribe();
      }
    },
    { target: agentTarget },
  );

  http.route(
    "task.work",
    "POST",
    "/blackboard/v1/claims/:claim_id/heartbeat",
    async (who, request) => {
      return board.heartbeat(who, claimOf(request));
    },
    { bodyOptional: true },
  );

  http.route("task.work", "POST", "/blackboard/v1/claims/:claim_id/events", async (who, request, reply) => {
    const { events = [] } = toJson(
      PostEventsRequestSchema,
      readMessage(PostEventsRequestSchema, request.body),
    );
    await board.post(who, claimOf(request), events);
    return reply.code(204).send();
  });

  http.route(
    "task.work",
    "POST",
    "/blackboard/v1/claims/:claim_id/settle",
    async (who, request) => {
      const settlement = readSettlement(request.body);
      return board.settle(who, claimOf(request), settlement);
    },
    { bodyOptional: true },
  );
}

/** The scope of a worker names its agent. */
function agentTarget(request: FastifyRequest): Target {
  return { agent: param(request, "agent") };
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
