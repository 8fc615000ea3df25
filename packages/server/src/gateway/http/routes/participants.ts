import { ParticipantSchema } from "@khala/contracts/conversation/v1";
import type { FastifyRequest } from "fastify";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import { readConvId } from "../conversation_request.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

/** `/chat/:conv_id/participants`: who takes part in a conversation. */
export function participantRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("conversation.read", "GET", "/chat/:conv_id/participants", async (who, request, reply) => {
    const list = await conversations.participants(who, readConvId(paramsOf(request).conv_id));
    return reply.header("Cache-Control", "no-store").send(list);
  });

  http.route("conversation.manage", "PUT", "/chat/:conv_id/participants/:subject", async (who, request) => {
    const { conv_id, subject } = paramsOf(request);
    const { role } = readMessage(ParticipantSchema, request.body);
    return conversations.putParticipant(who, readConvId(conv_id), { subject, role });
  });

  http.route(
    "conversation.manage",
    "DELETE",
    "/chat/:conv_id/participants/:subject",
    async (who, request) => {
      const { conv_id, subject } = paramsOf(request);
      return conversations.removeParticipant(who, readConvId(conv_id), subject);
    },
  );
}

function paramsOf(request: FastifyRequest): { conv_id: string; subject: string } {
  return request.params as { conv_id: string; subject: string };
}
