import { toJson } from "@bufbuild/protobuf";
import { EditQueuedRequestSchema } from "@khala/contracts/conversation/v1";
import type { FastifyRequest } from "fastify";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import { readConvId, readRunId } from "../conversation_request.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

/** `/chat/:conv_id/queue`: the messages that wait for the active run, to be read, edited and cancelled. */
export function queueRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("conversation.read", "GET", "/chat/:conv_id/queue", async (who, request, reply) => {
    const queue = await conversations.queue(who, readConvId(paramsOf(request).conv_id));
    return reply.header("Cache-Control", "no-store").send(queue);
  });

  http.route("conversation.write", "PATCH", "/chat/:conv_id/queue/:run_id", async (who, request) => {
    const { conv_id, run_id } = paramsOf(request);
    const edited = toJson(EditQueuedRequestSchema, readMessage(EditQueuedRequestSchema, request.body));
    return conversations.editQueued(who, readConvId(conv_id), readRunId(run_id), edited);
  });

  http.route("conversation.write", "DELETE", "/chat/:conv_id/queue/:run_id", async (who, request) => {
    const { conv_id, run_id } = paramsOf(request);
    return conversations.cancelQueued(who, readConvId(conv_id), readRunId(run_id));
  });
}

function paramsOf(request: FastifyRequest): { conv_id: string; run_id: string } {
  return request.params as { conv_id: string; run_id: string };
}
