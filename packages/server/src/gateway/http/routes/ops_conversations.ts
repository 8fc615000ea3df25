import type { OrgConversationJson } from "@khala/contracts/ops/v1";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import { operator } from "../../ops/operator.ts";
import type { Http } from "../http.ts";
import { pageAfter, readAfter, readLimit } from "../page_request.ts";

/** `GET /ops/v1/conversations`: whose there are in the org and how they are, never what is said in them. */
export function opsConversationRoutes(http: Http, conversations: ConversationPlane): void {
  http.app.get("/ops/v1/conversations", async (request, reply) => {
    const { org } = await operator(http, request);
    const { limit, after } = request.query as Record<string, unknown>;
    const query = { limit: readLimit(limit), after: readAfter(after) };
    const { conversations: found, next } = await conversations.listOfOrg(org, query);
    const shown = found.map(
      ({ convId, owner, updatedAt, runStatus }): OrgConversationJson => ({
        conv_id: convId,
        subject: owner,
        updated_at: updatedAt,
        run_status: runStatus,
        sockets: conversations.attachedTo(convId),
      }),
    );
    return reply.header("Cache-Control", "no-store").send({ conversations: shown, ...pageAfter(next) });
  });
}
