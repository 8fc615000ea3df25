import type { AgentStateJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";

/** What `typeof app` of a `defineApp` tells the client: the document of each topic. It is never there at run time. */
export interface AppTypes {
  readonly documents?: object;
}

/** Topics that every server with agents has. */
export interface BoardTopics {
  readonly "blackboard.agents": AgentStateJson;
  readonly "blackboard.correlations": CorrelationStateJson;
}

/** The topics of an app, and what their documents are. */
export type TopicsOf<App extends AppTypes> = BoardTopics & NonNullable<App["documents"]>;
