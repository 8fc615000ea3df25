// The interface for @khala/testing, the test kit of users. Not stable: use the kit.

export type { DeadLetter, Settlement, Task } from "./blackboard/model/task.ts";
export { type MadeArtifact, makeArtifacts } from "./blackboard/publish/drafts.ts";
export { createRouter, matches } from "./blackboard/publish/matching.ts";
export { approvalRules } from "./blackboard/waiting/approval_rules.ts";
export { incompleteJoin } from "./blackboard/waiting/gather.ts";
export { placeOf } from "./blackboard/waiting/gather_add.ts";
export { gatheredId } from "./blackboard/waiting/gather_sweep.ts";
export { agentTask } from "./blackboard/work/execution.ts";
export { outputArtifacts } from "./blackboard/work/outputs.ts";
export { settlementForError } from "./blackboard/work/retry_policy.ts";
export { supervise } from "./blackboard/work/supervise.ts";
export { runEngineTurn } from "./conversations/engines/engine_turn.ts";
export { Transcript } from "./conversations/timeline/transcript.ts";
export { openDatabase } from "./database/database.ts";
export { startEmbeddedPostgres } from "./database/embedded.ts";
export { migrate } from "./database/migrate.ts";
export { checkEventData } from "./events/event_schema.ts";
export { type Clock, isoTime, systemClock } from "./kit/clock.ts";
export type { Schemas } from "./kit/standard_schema.ts";
export { applyEvent } from "./sync/write/projection.ts";
