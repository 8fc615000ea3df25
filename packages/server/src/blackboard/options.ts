import type { AgentCountedJson, CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Wakeups } from "../database/wakeups.ts";
import type { Board } from "./board.ts";
import type { BoardOptions } from "./board_options.ts";
import type { Agent } from "./model/agent.ts";
import type { Artifact } from "./model/artifact.ts";
import type { Carrier } from "./observe/spans.ts";
import type { CheckedSchedule } from "./publish/cron.ts";

/** Settings of the operator. Times are milliseconds. */
export interface BlackboardSettings {
  /** Whether agents run in this process. */
  readonly works: boolean;
  /** Concurrent tasks of all agents together. */
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  /** How long decisions, replays and cancellations are kept: longer than dead letters are. */
  readonly keepMs: number;
  /** The longest chain of agents. */
  readonly maxDepth: number;
  /** Queued tasks of one reader from which publishing is slowed down, then refused. */
  readonly lag: { readonly slow: number; readonly refuse: number };
  /** Artifacts that one org may publish per second. */
  readonly publishRate: number;
}

/** Receives the board's state, which becomes documents. */
export interface BoardReport {
  agent(org: string, name: string, counted: AgentCountedJson): Promise<void>;
  correlation(org: string, id: string, counted: CorrelationCountedJson): Promise<void>;
}

/** A board that receives wake-ups of other processes. */
export interface WakeableBoard extends Board {
  onWakeup(name: string): void;
  /** Checks for work, because wake-ups may have been lost. */
  recheck(): void;
}

/** Work that belongs to a conversation. */
export interface ConversationWork {
  readonly org: string;
  readonly agent: string;
  readonly conversation: NonNullable<Artifact["conversation"]>;
}

/** Posts events to the conversation that work belongs to, as its agent. */
export type PostToConversation = (work: ConversationWork, events: readonly EventJson[]) => Promise<void>;

/** Options of the plane. */
export interface BlackboardOptions extends BlackboardSettings {
  readonly agents: readonly Agent[];
  readonly schemas: Readonly<Record<string, StandardSchemaV1>>;
  readonly schedules: readonly CheckedSchedule[];
  readonly wakeups: Pick<Wakeups, "send">;
  readonly report: BoardReport;
  /** Absent where there are no conversations. */
  readonly postToConversation?: PostToConversation | undefined;
  /** The backend's name in traces. */
  readonly carrier: Carrier;
  /** Opens the backend. */
  readonly openBoard: (options: BoardOptions) => Promise<WakeableBoard>;
}
