import type { ApprovalInboxJson, PendingApprovalJson } from "@khala/contracts/conversation/v1";
import type { Http } from "../http.ts";

/** The decision of a person. */
export interface ApprovalDecision {
  readonly approved: boolean;
  readonly reason?: string;
}

/** Pending approvals: tool calls of conversations, and tasks of the board. */
export interface Approvals {
  /** Oldest first. */
  list(): Promise<readonly PendingApprovalJson[]>;
  /** Decides one. The first decision counts. */
  decide(
    approval: Pick<PendingApprovalJson, "kind" | "id" | "conv_id" | "tool_call_id">,
    decision: ApprovalDecision,
  ): Promise<void>;
}

/** The inbox over HTTP. */
export function openApprovals(http: Http): Approvals {
  return {
    async list() {
      const { approvals = [] } = (await http.request("GET", "/approvals")).body as ApprovalInboxJson;
      return approvals;
    },
    async decide({ kind, id = "", conv_id = "", tool_call_id = "" }, { approved, reason }) {
      const why = reason && { reason };
      if (kind === "chat") {
        const path = `/chat/${encodeURIComponent(conv_id)}/tools/${encodeURIComponent(tool_call_id)}`;
        await http.request("POST", path, { body: { approve: approved, ...why } });
      } else {
        const path = `/blackboard/v1/approvals/${encodeURIComponent(id)}`;
        await http.request("POST", path, { body: { approved, ...why } });
      }
    },
  };
}
