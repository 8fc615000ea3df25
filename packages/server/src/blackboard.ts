// The interface for a driver of the board in a package of its own.

export type { Board, Consumer, DeadLetterPage, DeadLetterQuery, Order } from "./blackboard/board.ts";
export { NO_ORG } from "./blackboard/board.ts";
export type {
  BoardObserver,
  BoardOptions,
  DeadLetterName,
  RecordPosition,
  Routing,
} from "./blackboard/board_options.ts";
export type { Artifact } from "./blackboard/model/artifact.ts";
export { conflict, sameContent, versionKey } from "./blackboard/model/artifact.ts";
export type { AgentCounts, CorrelationCounts, CorrelationName } from "./blackboard/model/counts.ts";
export { AGENT_NAME, ROUTER } from "./blackboard/model/names.ts";
export {
  type DeadLetter,
  type Failure,
  idempotencyKey,
  type Settlement,
  type Task,
} from "./blackboard/model/task.ts";
export { backoff } from "./kit/backoff.ts";
export { isoTime, sleep } from "./kit/clock.ts";
export type { Context } from "./kit/context.ts";
export { GroupCommit, type GroupCommitOptions, type Outcome } from "./kit/group_commit.ts";
export { sha256 } from "./kit/hash.ts";
export { runLoop, type Service, Wake } from "./kit/service.ts";
export { recordSpan } from "./kit/telemetry.ts";
export { withTimeout } from "./kit/timeout.ts";
