import { SCOPES } from "@khala/contracts";
import { AgentCountedSchema, CorrelationCountedSchema } from "@khala/contracts/blackboard/v1";
import { ApprovalEndedSchema, ApprovalWaitingSchema } from "@khala/contracts/conversation/v1";
import {
  NotificationDismissedSchema,
  NotificationReadSchema,
  type NotificationSentJson,
  NotificationSentSchema,
  RunCompletedSchema,
  RunDeletedSchema,
  RunFailedSchema,
  RunSharedSchema,
  RunStartedSchema,
  RunStepSchema,
  RunStoppedSchema,
  WorkerHeartbeatSchema,
  WorkerRegisteredSchema,
  WorkerRetiredSchema,
  WorkerStatusSchema,
} from "@khala/contracts/runtime/v1";
import { reachesOrg } from "../access/access.ts";
import { defineStream } from "./stream.ts";

/** Runs: one stream per run of an agent. */
export const runs = defineStream({
  kind: "run",
  path: "/runtime/v1/runs",
  scope: SCOPES.runtimeWrite,
  events: {
    "run.started": RunStartedSchema,
    "run.step": RunStepSchema,
    "run.completed": RunCompletedSchema,
    "run.failed": RunFailedSchema,
    "run.stopped": RunStoppedSchema,
    "run.shared": RunSharedSchema,
    "run.deleted": RunDeletedSchema,
  },
});

/** Workers: one stream per worker that runs agents. */
export const workers = defineStream({
  kind: "worker",
  path: "/runtime/v1/workers",
  scope: SCOPES.runtimeWrite,
  events: {
    "worker.registered": WorkerRegisteredSchema,
    "worker.heartbeat": WorkerHeartbeatSchema,
    "worker.status": WorkerStatusSchema,
    "worker.retired": WorkerRetiredSchema,
  },
});

/** Notifications: one stream per notification. It is served where an app has the model. */
export const notificationStream = defineStream({
  kind: "notification",
  path: "/runtime/v1/notifications",
  scope: SCOPES.runtimeWrite,
  events: {
    "notification.sent": NotificationSentSchema,
    "notification.read": NotificationReadSchema,
    "notification.dismissed": NotificationDismissedSchema,
  },
  /** A service sends to everybody, others to themselves. What is not one's own does not change: the model compares. */
  authorize(caller, _stream, { type, data }) {
    if (type !== "notification.sent" || reachesOrg(caller, "stream.append")) return true;
    return (data as NotificationSentJson).to === caller.subject;
  },
});

/** Approvals: one stream per tool call or task that a person decides. */
export const approvals = defineStream({
  kind: "approval",
  scope: SCOPES.ops,
  events: { "approval.waiting": ApprovalWaitingSchema, "approval.ended": ApprovalEndedSchema },
});

/** Agents of the blackboard: periodic counts per org. */
export const boardAgents = defineStream({
  kind: "board_agent",
  scope: SCOPES.ops,
  events: { "agent.counted": AgentCountedSchema },
});

/** Correlations on the blackboard: periodic progress. */
export const boardCorrelations = defineStream({
  kind: "board_correlation",
  scope: SCOPES.ops,
  events: { "correlation.counted": CorrelationCountedSchema },
});
