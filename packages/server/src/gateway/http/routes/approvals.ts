import type { ApprovalInboxJson, PendingApprovalJson } from "@khala/contracts/conversation/v1";
import { hasScopeFor } from "../../../access/access.ts";
import type { Viewer } from "../../../access/viewer.ts";
import type { BlackboardPlane } from "../../../blackboard/plane.ts";
import type { ConversationPlane } from "../../../conversations/plane.ts";
import type { Http } from "../http.ts";

/** `GET /approvals`: what waits for a person and the caller may see, of conversations and of the board. */
export function approvalRoutes(
  http: Http,
  conversations: ConversationPlane,
  board: BlackboardPlane | undefined,
): void {
  async function ofBoard(viewer: Viewer): Promise<PendingApprovalJson[]> {
    if (!board || !hasScopeFor(viewer, "approval.read")) return [];
    return (await board.approvals(viewer)).map((approval) => ({ kind: "board", ...approval }));
  }

  http.route("approvals.list", "GET", "/approvals", async (viewer) => {
    const chat = hasScopeFor(viewer, "conversation.read") ? conversations.approvals(viewer) : [];
    const found = (await Promise.all([chat, ofBoard(viewer)])).flat();
    const since = ({ created_at: at = "" }: PendingApprovalJson) => Date.parse(at);
    const approvals = found.sort((a, b) => since(a) - since(b));
    return { approvals } satisfies ApprovalInboxJson;
  });
}
