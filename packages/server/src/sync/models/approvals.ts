import type { WaitingApprovalJson } from "@khala/contracts/conversation/v1";
import { approvals } from "../../events/streams.ts";
import { defineModel, tombstone } from "../model.ts";

/** `approvals`: one document per tool call or task that waits for a person, `approval:<id>`. */
export const waitingApprovals = defineModel({
  topic: "approvals",
  prefix: "approval",
  streams: [approvals],
  // The id of the stream is an encoding of it.
  id: (event) => (event.type === "approval.waiting" ? event.data.approval?.id : event.data.id) ?? null,
  project: (_: WaitingApprovalJson | null, event) =>
    event.type === "approval.waiting" ? (event.data.approval ?? null) : tombstone,
  audience: (_, event) => (event.type === "approval.waiting" ? event.data.audience : null),
});
