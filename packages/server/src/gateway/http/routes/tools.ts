import { toJson } from "@bufbuild/protobuf";
import { type DecideToolRequestJson, DecideToolRequestSchema } from "@khala/contracts/conversation/v1";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import { readConvId } from "../conversation_request.ts";
import type { Http } from "../http.ts";
import { readMessage } from "../read_request.ts";

/** `POST /chat/:conv_id/tools/:call_id`: decides a tool call that a run waits for. */
export function toolRoutes(http: Http, conversations: ConversationPlane): void {
  http.route("tool_call.decide", "POST", "/chat/:conv_id/tools/:call_id", async (who, request) => {
    const { conv_id, call_id: callId } = request.params as { conv_id: string; call_id: string };
    return conversations.decideCalls(who, readConvId(conv_id), [
      { callId, decision: readDecision(request.body) },
    ]);
  });
}

function readDecision(body: unknown): DecideToolRequestJson {
  return toJson(DecideToolRequestSchema, readMessage(DecideToolRequestSchema, body));
}
