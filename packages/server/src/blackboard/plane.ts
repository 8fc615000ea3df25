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
import type { Service } from "../kit/service.ts";
import type { DeadLetterPage } from "./board.ts";
import type { Artifact, ArtifactDraft } from "./model/artifact.ts";
import type { DeadLetter } from "./model/task.ts";

/** Who publishes or asks. */
export interface Caller {
  readonly org: string;
  readonly subject: string;
  /** W3C trace context of the request. */
  readonly trace?: string;
  /** May see what belongs to no org, such as records that cannot be decoded. */
  readonly operates?: boolean;
}

/** Dead letters that are wanted. */
export interface DeadLetterQuery {
  readonly after?: string;
  readonly limit: number;
  readonly correlationId?: string;
}

/** Who asks for work, how much of it, how long it waits, and of which org; of all unless one is named. */
export interface ClaimAsk {
  readonly worker: string;
  readonly max: number;
  readonly waitMs: number;
  readonly org?: string | undefined;
}

/** Everything that the outside can do with the board. What belongs to another org is not there. */
export interface BlackboardPlane extends Service {
  /** All are published or none; what is wrong with which is in the error. Slowed, then refused, when readers lag. */
  publish(caller: Caller, drafts: readonly ArtifactDraft[]): Promise<readonly PublishedJson[]>;
  get(caller: Caller, id: string): Promise<Artifact | undefined>;
  /** The recent window, newest first. */
  recent(
    caller: Caller,
    query: { readonly type?: string; readonly correlationId?: string; readonly limit: number },
  ): Promise<Artifact[]>;

  agents(): Promise<AgentStateJson[]>;
  lag(): Promise<readonly PartitionLagJson[]>;
  correlation(caller: Caller, correlationId: string): Promise<CorrelationStateJson | undefined>;

  deadLetters(caller: Caller, agent: string, query: DeadLetterQuery): Promise<DeadLetterPage>;
  deadLetter(caller: Caller, agent: string, id: string): Promise<DeadLetter | undefined>;
  /** Runs a dead letter again, once however often it is asked; `payload` replaces that of its only artifact. */
  replay(
    caller: Caller,
    agent: string,
    id: string,
    edit?: { readonly payload: unknown },
  ): Promise<ReplayResponseJson>;
  /** Replays those with these ids, of a correlation, or all; `onProgress` after each page. */
  replayAll(
    caller: Caller,
    agent: string,
    which: { readonly ids?: readonly string[]; readonly correlationId?: string },
    onProgress?: (done: number) => void,
  ): Promise<ReplayAllResponseJson>;

  /** An agent that is paused takes no more tasks, on any server, until it is resumed. */
  pause(agent: string): Promise<void>;
  resume(agent: string): Promise<void>;
  /** What was made for an agent until now is dropped, and what of it runs is told to stop. */
  cancelAgent(agent: string): Promise<void>;
  /** The tasks of a correlation wait until it is resumed; what runs goes on. */
  pauseCorrelation(caller: Caller, correlationId: string): Promise<void>;
  /** What is open of a correlation is dropped, and what runs is told to stop. */
  cancel(caller: Caller, correlationId: string): Promise<void>;
  /** Lifts a pause; else a cancellation, and replays the dead letters of all agents. Answers how many. */
  resumeCorrelation(caller: Caller, correlationId: string): Promise<number>;

  approvals(caller: Caller): Promise<ApprovalJson[]>;
  decide(
    caller: Caller,
    id: string,
    decision: { readonly approved: boolean; readonly reason?: string },
  ): Promise<void>;

  /** For agents in other languages; of all orgs unless one is named. An empty answer after `waitMs` means that there is no work. */
  claim(agent: string, ask: ClaimAsk, signal: AbortSignal): Promise<ClaimJson[]>;
  heartbeat(claimId: string, org?: string): Promise<HeartbeatResponseJson>;
  settle(claimId: string, settlement: SettleRequestJson, org?: string): Promise<SettleResponseJson>;
}
