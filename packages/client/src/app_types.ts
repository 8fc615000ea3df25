import type { AgentStateJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";

/** The part of `typeof app` (of `defineApp`) that the client uses: the document type of each topic. Types only. */
export interface AppTypes {
  readonly documents?: object;
}

/** Topics that every server with agents has. */
export interface BoardTopics {
  readonly "blackboard.agents": AgentStateJson;
  readonly "blackboard.correlations": CorrelationStateJson;
}

/** The topics of an app, with their document types. */
export type TopicsOf<App extends AppTypes> = BoardTopics & NonNullable<App["documents"]>;
