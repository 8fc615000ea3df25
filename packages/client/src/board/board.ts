import type {
  AgentListJson,
  ApprovalListJson,
  ArtifactDraftJson,
  ArtifactJson,
  ArtifactListJson,
  CorrelationStateJson,
  DeadLetterJson,
  DeadLetterListJson,
  LagResponseJson,
  PublishedJson,
  PublishResponseJson,
  ReplayAllRequestJson,
  ReplayAllResponseJson,
  ReplayRequestJson,
  ReplayResponseJson,
} from "@khala/contracts/blackboard/v1";
import type { Http, RequestOptions } from "../http.ts";
import type { Sync } from "../sync/plane_port.ts";
import { type CorrelationWatch, watchCorrelation } from "./correlation_watch.ts";

export interface ArtifactFilter {
  readonly type?: string;
  readonly correlation_id?: string;
  readonly limit?: number;
}

export interface DeadLetterFilter {
  readonly correlation_id?: string;
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
}

/** The blackboard: artifacts, agents and dead letters. */
export interface Board<Draft extends object = ArtifactDraftJson> {
  /** Publishes one artifact. Set its `id` to be able to retry. */
  publish(draft: Draft): Promise<PublishedJson>;
  /** Publishes up to 1,000 artifacts, all or none. */
  publish(drafts: readonly Draft[]): Promise<readonly PublishedJson[]>;
  /** The latest version. */
  artifact(id: string): Promise<ArtifactJson>;
  /** The recent window, newest first. */
  artifacts(filter?: ArtifactFilter): Promise<ArtifactListJson>;
  agents(): Promise<AgentListJson>;
  lag(): Promise<LagResponseJson>;
  /** The state of a correlation. */
  correlation(id: string): Promise<CorrelationStateJson>;
  /** The same, live. */
  watch(correlationId: string): CorrelationWatch;
  deadLetters(agent: string, filter?: DeadLetterFilter): Promise<DeadLetterListJson>;
  deadLetter(agent: string, id: string): Promise<DeadLetterJson>;
  /** Runs the task again; `payload` replaces that of its only artifact. */
  replay(agent: string, id: string, edit?: ReplayRequestJson): Promise<ReplayResponseJson>;
  /** Replays all dead letters of an agent, of a correlation, or by id. */
  replayAll(agent: string, which?: ReplayAllRequestJson): Promise<ReplayAllResponseJson>;
  /** Pauses the agent on all servers. Needs the scope `ops`. */
  pause(agent: string): Promise<void>;
  resume(agent: string): Promise<void>;
  /** Cancels the agent's open tasks. Needs the scope `ops`. */
  cancelAgent(agent: string): Promise<void>;
  /** Pauses the tasks of a correlation. */
  pauseCorrelation(correlationId: string): Promise<void>;
  /** Cancels the open tasks of a correlation. */
  cancel(correlationId: string): Promise<void>;
  /** Ends a pause, or a cancellation: then it replays the dead letters of all agents. */
  resumeCorrelation(correlationId: string): Promise<ReplayAllResponseJson>;
  /** Tasks that wait for approval. */
  approvals(): Promise<ApprovalListJson>;
  /** The first decision counts. */
  decide(id: string, decision: { readonly approved: boolean; readonly reason?: string }): Promise<void>;
}

/** The board over HTTP, and its live documents. */
export function openBoard(http: Http, sync: Pick<Sync, "list" | "subscribe">): Board {
  async function ask<T>(
    method: "GET" | "POST",
    path: readonly string[],
    options?: RequestOptions,
  ): Promise<T> {
    const address = `/blackboard/v1/${path.map(encodeURIComponent).join("/")}`;
    // The server answers with the shapes of the same protos.
    return (await http.request(method, address, options)).body as T;
  }
  const tell = (...path: readonly string[]) => ask<void>("POST", path);

  function publish(draft: ArtifactDraftJson): Promise<PublishedJson>;
  function publish(drafts: readonly ArtifactDraftJson[]): Promise<readonly PublishedJson[]>;
  async function publish(
    what: ArtifactDraftJson | readonly ArtifactDraftJson[],
  ): Promise<PublishedJson | readonly PublishedJson[]> {
    const several = isList(what);
    const body = several ? { artifacts: what } : what;
    const { artifacts = [] } = await ask<PublishResponseJson>("POST", ["artifacts"], { body });
    return several ? artifacts : artifacts[0]!;
  }

  return {
    publish,
    artifact: (id) => ask("GET", ["artifacts", id]),
    artifacts: (filter = {}) => ask("GET", ["artifacts"], { query: { ...filter } }),
    agents: () => ask("GET", ["agents"]),
    lag: () => ask("GET", ["lag"]),
    correlation: (id) => ask("GET", ["correlations", id]),
    watch: (correlationId) => watchCorrelation(sync, correlationId),
    deadLetters: (agent, filter = {}) => ask("GET", ["dead-letters", agent], { query: { ...filter } }),
    deadLetter: (agent, id) => ask("GET", ["dead-letters", agent, id]),
    replay: (agent, id, edit = {}) => ask("POST", ["dead-letters", agent, id, "replay"], { body: edit }),
    replayAll: (agent, which = {}) => ask("POST", ["dead-letters", agent, "replay"], { body: which }),
    pause: (agent) => tell("agents", agent, "pause"),
    resume: (agent) => tell("agents", agent, "resume"),
    cancelAgent: (agent) => tell("agents", agent, "cancel"),
    pauseCorrelation: (id) => tell("correlations", id, "pause"),
    cancel: (id) => tell("correlations", id, "cancel"),
    resumeCorrelation: (id) => ask("POST", ["correlations", id, "resume"]),
    approvals: () => ask("GET", ["approvals"]),
    decide: (id, decision) => ask("POST", ["approvals", id], { body: decision }),
  };
}

function isList<T>(what: T | readonly T[]): what is readonly T[] {
  return Array.isArray(what);
}
