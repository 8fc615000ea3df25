import type { AgentStateJson, ArtifactDraftJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { ChatRequestJson, WaitingApprovalJson } from "@khala/contracts/conversation/v1";
import type { AnyAppends } from "./sync/appends/appends_port.ts";

/** The part of `typeof app` (of `defineApp`) that the client uses: the document type of each topic. Types only. */
export interface AppTypes {
  readonly documents?: object;
  /** The artifacts that may be published on the board. */
  readonly drafts?: object;
  /** The events that may be appended, by the path of the stream. */
  readonly appends?: object;
  /** The `params` that a message may have. */
  readonly params?: object;
}

/** The events of an app's streams, by their paths; anything, for an app without streams. */
export type AppendsOf<App extends AppTypes> =
  object extends NonNullable<App["appends"]> ? AnyAppends : NonNullable<App["appends"]>;

/** The drafts that an app's schemas allow; any, for an app without schemas. */
export type DraftsOf<App extends AppTypes> =
  object extends NonNullable<App["drafts"]> ? ArtifactDraftJson : NonNullable<App["drafts"]>;

/** The params that an app's engine takes; any, for an engine without a schema. */
export type ParamsOf<App extends AppTypes> = [keyof NonNullable<App["params"]>] extends [never]
  ? AnyParams
  : NonNullable<App["params"]>;

/** Params of an engine that is not known. */
export type AnyParams = NonNullable<ChatRequestJson["params"]>;

/** Topics that every server with agents has. `approvals` is also on those with an engine alone. */
export interface BoardTopics {
  readonly approvals: WaitingApprovalJson;
  readonly "blackboard.agents": AgentStateJson;
  readonly "blackboard.correlations": CorrelationStateJson;
}

/** The topics of an app, with their document types. */
export type TopicsOf<App extends AppTypes> = BoardTopics & NonNullable<App["documents"]>;
