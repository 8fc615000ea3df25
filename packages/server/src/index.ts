// The type of a stream's `authorize`; apps that emit declarations need its name.
export type { Caller as StreamCaller } from "./access/viewer.ts";
export { type App, type AppDefinition, defineApp } from "./app.ts";
export type { Agent, AgentOptions, AgentOutput, AgentTask, Schedule } from "./blackboard/model/agent.ts";
export type { Artifact, ArtifactDraft } from "./blackboard/model/artifact.ts";
export { agent } from "./blackboard/model/define_agent.ts";
export { FatalError, RateLimitedError, RetryableError } from "./blackboard/model/errors.ts";
export { type BlackboardStore, blackboardStore } from "./blackboard/model/store.ts";
export type { BlackboardPlane, Caller } from "./blackboard/plane.ts";
export { type EngineFailureCode, PublicError } from "./conversations/engines/public_error.ts";
export type { Append, Authority, NewEvent } from "./events/authority.ts";
export type { EventSchema } from "./events/event_schema.ts";
export { sampleOf } from "./events/sample.ts";
export {
  type AuthorityEvent,
  type DataOf,
  defineStream,
  type EventOf,
  type ProposedEvent,
  type StreamDefinition,
  type StreamState,
} from "./events/stream.ts";
export { runs, workers } from "./events/streams.ts";
export { type BoardWorker, createBoardWorker } from "./main/board_worker.ts";
export { type Config, describeConfig, readConfig } from "./main/config.ts";
export { createKhala, type Khala } from "./main/khala.ts";
export type { KhalaOptions } from "./main/startup.ts";
export { onStrayError } from "./main/stray_errors.ts";
export { findUnknownSettings } from "./main/unknown_settings.ts";
export { defineModel, type Model, type ModelDefinition, tombstone } from "./sync/model.ts";
export { invoices, lightningControlPlane } from "./sync/models/lightning_control_plane.ts";
export { notifications } from "./sync/models/notifications.ts";
export { runSummaries, workerSummaries } from "./sync/models/runtime.ts";
