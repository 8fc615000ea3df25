import { SCOPES } from "@khala/contracts";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { BlackboardPlane } from "../../../blackboard/plane.ts";
import { hasScope, requireScope } from "../../auth/claims.ts";
import { isId, readClaim, readSettlement } from "../blackboard_request.ts";
import type { Http } from "../http.ts";
import { agentOf, BODY_OPTIONAL, missing, param } from "./blackboard.ts";

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
