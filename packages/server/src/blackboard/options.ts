import type { AgentCountedJson, CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Wakeups } from "../database/wakeups.ts";
import type { Board } from "./board.ts";
import type { BoardOptions } from "./board_options.ts";
import type { Agent } from "./model/agent.ts";
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

/** Options of the plane. */
export interface BlackboardOptions extends BlackboardSettings {
  readonly agents: readonly Agent[];
  readonly schemas: Readonly<Record<string, StandardSchemaV1>>;
  readonly schedules: readonly CheckedSchedule[];
  readonly wakeups: Pick<Wakeups, "send">;
  readonly report: BoardReport;
  /** What traces call the backend. */
  readonly carrier: Carrier;
  /** Opens the backend. */
  readonly openBoard: (options: BoardOptions) => Promise<WakeableBoard>;
}
