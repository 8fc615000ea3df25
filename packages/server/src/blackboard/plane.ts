import type {
  AgentStateJson,
  ApprovalJson,
  ClaimJson,
  CorrelationStateJson,
  HeartbeatResponseJson,
  PartitionLagJson,
  PublishedJson,
  ReplayAllResponseJson,
  ReplayResponseJson,
  SettleRequestJson,
  SettleResponseJson,
} from "@khala/contracts/blackboard/v1";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { Caller as Viewer } from "../access/viewer.ts";
import type { Service } from "../kit/service.ts";
import type { DeadLetterPage } from "./board.ts";
import type { Artifact, ArtifactDraft } from "./model/artifact.ts";
import type { DeadLetter } from "./model/task.ts";
import type { SetAsideItems } from "./observe/set_aside_items.ts";

/** The authenticated caller of an operation. */
export interface Caller extends Viewer {
  /** W3C trace context of the request. */
  readonly trace?: string;
  /** The conversation whose run publishes. No request sets it. */
  readonly conversation?: Artifact["conversation"];
}

/** A query for dead letters. */
export interface DeadLetterQuery {
  readonly after?: string;
  readonly limit: number;
  readonly correlationId?: string;
}

/** A worker's request for tasks: how many, and how long to wait. */
export interface ClaimAsk {
  readonly worker: string;
  readonly max: number;
  readonly waitMs: number;
}

/** Every operation on the board that the gateway offers. Data of another org does not exist for the caller. */
export interface BlackboardPlane extends Service {
  /** Publishes all drafts or none; the error names the invalid ones. Who may not read an artifact cannot replace it. Slowed down, then refused, when readers lag. */
  publish(caller: Caller, drafts: readonly ArtifactDraft[]): Promise<readonly PublishedJson[]>;
  /** The newest version; of another org, if it is public. */
  get(caller: Caller, id: string, org?: string): Promise<Artifact | undefined>;
  /** The recent window, newest first. */
  recent(
    caller: Caller,
    query: { readonly type?: string; readonly correlationId?: string; readonly limit: number },
  ): Promise<Artifact[]>;

  /** The agents, each in its state for the caller's org, with the org's tasks; for the platform, and without a caller, with all tasks. */
  agents(caller?: Caller): Promise<AgentStateJson[]>;
  /** The lag of readers with the tasks of the caller's org; for the platform, and without a caller, with all tasks. */
  lag(caller?: Caller): Promise<readonly PartitionLagJson[]>;
  /** The items that are set aside, for health. Names no org. */
  problems(): string[];
  /** The items set aside for good, of the caller's org, or of all for the platform; oldest first. */
  readonly setAside: SetAsideItems["list"];
  /** Processes such an item again. */
  readonly retrySetAside: SetAsideItems["retry"];
  readonly discardSetAside: SetAsideItems["discard"];
  correlation(caller: Caller, correlationId: string): Promise<CorrelationStateJson | undefined>;

  deadLetters(caller: Caller, agent: string, query: DeadLetterQuery): Promise<DeadLetterPage>;
  deadLetter(caller: Caller, agent: string, id: string): Promise<DeadLetter | undefined>;
  /** Replays a dead letter, once however often it is called; `payload` replaces that of its only artifact. */
  replay(
    caller: Caller,
    agent: string,
    id: string,
    edit?: { readonly payload: unknown },
  ): Promise<ReplayResponseJson>;
  /** Replays dead letters by id, by correlation, or all of them. */
  replayAll(
    caller: Caller,
    agent: string,
    which: { readonly ids?: readonly string[]; readonly correlationId?: string },
  ): Promise<ReplayAllResponseJson>;

  /** A paused agent claims no tasks on any server until it is resumed. */
  pause(agent: string): Promise<void>;
  resume(agent: string): Promise<void>;
  /** Drops the agent's queued tasks and aborts its running ones. */
  cancelAgent(agent: string): Promise<void>;
  /** Holds the tasks of a correlation until it is resumed; running tasks continue. */
  pauseCorrelation(caller: Caller, correlationId: string): Promise<void>;
  /** Drops the open tasks of a correlation and aborts its running ones. */
  cancel(caller: Caller, correlationId: string): Promise<void>;
  /** Lifts a pause, or lifts a cancellation and replays the dead letters of all agents. Returns the number of replays. */
  resumeCorrelation(caller: Caller, correlationId: string): Promise<number>;

  approvals(caller: Caller): Promise<ApprovalJson[]>;
  decide(
    caller: Caller,
    id: string,
    decision: { readonly approved: boolean; readonly reason?: string },
  ): Promise<void>;

  /**
   * For workers in other languages: tasks of the caller's org, or of every org for a worker of the platform. Returns an empty
   * list if no task arrives within `waitMs`.
   */
  claim(caller: Caller, agent: string, ask: ClaimAsk, signal: AbortSignal): Promise<ClaimJson[]>;
  /** The claim of an agent that the caller does not work for does not exist for it. */
  heartbeat(caller: Caller, claimId: string): Promise<HeartbeatResponseJson>;
  settle(caller: Caller, claimId: string, settlement: SettleRequestJson): Promise<SettleResponseJson>;
  /** Posts events to the conversation that the claimed task belongs to, as its agent; invalid_request when it belongs to none. */
  post(caller: Caller, claimId: string, events: readonly EventJson[]): Promise<void>;
}
