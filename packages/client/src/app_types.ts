import type { AgentStateJson, ArtifactDraftJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { AnyAppends } from "./sync/appends_port.ts";

/** The part of `typeof app` (of `defineApp`) that the client uses: the document type of each topic. Types only. */
export interface AppTypes {
  readonly documents?: object;
  /** What may be published on the board. */
  readonly drafts?: object;
  /** What may be appended, by the path of the stream. */
  readonly appends?: object;
}

/** What an app's streams accept, by their paths; anything, for an app without streams. */
export type AppendsOf<App extends AppTypes> =
  object extends NonNullable<App["appends"]> ? AnyAppends : NonNullable<App["appends"]>;

/** The drafts that an app's schemas allow; any, for an app without schemas. */
export type DraftsOf<App extends AppTypes> =
  object extends NonNullable<App["drafts"]> ? ArtifactDraftJson : NonNullable<App["drafts"]>;

/** Topics that every server with agents has. */
export interface BoardTopics {
  readonly "blackboard.agents": AgentStateJson;
  readonly "blackboard.correlations": CorrelationStateJson;
}

/** The topics of an app, with their document types. */
export type TopicsOf<App extends AppTypes> = BoardTopics & NonNullable<App["documents"]>;
