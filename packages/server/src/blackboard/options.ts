import type { AgentCountedJson, CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Wakeups } from "../database/wakeups.ts";
import type { Board, BoardOptions } from "./board.ts";
import type { Agent } from "./model/agent.ts";
import type { Carrier } from "./observe/spans.ts";
import type { CheckedSchedule } from "./publish/cron.ts";

/** What an operator sets. Times are milliseconds. */
export interface BlackboardSettings {
  /** Whether this process does the work of agents. */
  readonly works: boolean;
  /** Tasks at a time, of all agents together. */
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
  /** How long decisions, replays and cancellations are remembered: longer than dead letters are kept. */
  readonly keepMs: number;
  /** The longest chain of agents. */
  readonly maxDepth: number;
  /** Waiting tasks of one reader from which publishing is slowed, then refused. */
  readonly lag: { readonly slow: number; readonly refuse: number };
}

/** Where the board reports how it stands, for whoever follows documents. */
export interface BoardReport {
  agent(org: string, name: string, counted: AgentCountedJson): Promise<void>;
  correlation(org: string, id: string, counted: CorrelationCountedJson): Promise<void>;
}

/** A board that hears wakeups of other processes. */
export interface WakeableBoard extends Board {
  onWakeup(name: string): void;
  /** Wakeups may have been lost. */
  recheck(): void;
}

/** What the plane is given. */
export interface BlackboardOptions extends BlackboardSettings {
  readonly agents: readonly Agent[];
  readonly schemas: Readonly<Record<string, StandardSchemaV1>>;
  readonly schedules: readonly CheckedSchedule[];
  readonly wakeups: Pick<Wakeups, "send">;
  readonly report: BoardReport;
  /** What the engine is called in traces. */
  readonly carrier: Carrier;
  /** Opens the engine. */
  readonly openBoard: (options: BoardOptions) => Promise<WakeableBoard>;
}
