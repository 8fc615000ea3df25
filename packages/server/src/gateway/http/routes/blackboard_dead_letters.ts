import { SCOPES } from "@khala/contracts";
import type { BlackboardPlane } from "../../../blackboard/plane.ts";
import { isId, readDeadLetterQuery, readReplay, readReplayAll } from "../blackboard_request.ts";
import type { Http } from "../http.ts";
import { agentOf, BODY_OPTIONAL, callerOf, missing, param } from "./blackboard.ts";

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
