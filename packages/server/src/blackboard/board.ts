import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { Service } from "../kit/service.ts";
import type { Artifact } from "./model/artifact.ts";
import type { AgentCounts, AgentOfOrg, CorrelationCounts, CorrelationName } from "./model/counts.ts";
import type { DeadLetter, Settlement, Task } from "./model/task.ts";

/** The order of an agent's tasks: by key, by partition, or none. */
export type Order = "key" | "partition" | "none";

/** Handles the tasks of an agent in this process. */
export interface Consumer {
  readonly agent: string;
  readonly order: Order;
  /** A retry blocks the later tasks of its key; otherwise they overtake it. */
  readonly strict: boolean;
  /** Concurrent tasks in this process. */
  readonly concurrency: number;
  /** The work is remote: stopping does not wait for it, and requeues it as if it had not started. */
  readonly away?: boolean;
  /** Resolves when more tasks may be claimed: not while the agent is paused or its circuit breaker is open. */
  gate(signal: AbortSignal): Promise<void>;
  /**
   * Runs the task outside of any transaction. Never throws or rejects. The signal aborts when the process loses the task, or
   * when shutdown stops waiting; the settlement is ignored then. After a synchronous result the signal is not used.
   */
  handle(task: Task, signal: AbortSignal): Promise<Settlement> | Settlement;
  /** Whether a handled task has started. One that still waits for the gate may be requeued. */
  begun?(task: Task): boolean;
}

/** Whose dead letters are asked for. Those of records that cannot be decoded belong to NO_ORG. */
export interface DeadLetterQuery {
  readonly orgs: readonly string[];
  readonly correlationId?: string;
  readonly after?: string;
  readonly limit: number;
}

/** The org of what belongs to none. */
export const NO_ORG = "";

/** A page of dead letters, newest first. */
export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[];
  readonly next?: string;
}

/**
 * The backend of the blackboard: Postgres or Kafka. Publication is exactly once. Execution is at least once, with an
 * idempotency key. A settled task does not run again.
 */
export interface Board extends Service {
  /** Throws `unavailable` while the backend is known not to answer. Absent where its calls fail in time by themselves. */
  requireReachable?(): void;
  /** Publishes all or none, with their index, in one transaction. An existing org, id and version is a duplicate. */
  publish(artifacts: readonly Artifact[]): Promise<readonly ("published" | "duplicate")[]>;
  /** Enqueues tasks without routing: all or none. A task that is known, by org, id and replay, is skipped. */
  enqueue(tasks: readonly Task[]): Promise<void>;
  /** The newest version. */
  get(org: string, id: string): Promise<Artifact | undefined>;
  /** The newest versions of those that this process knows of; others may have published more a moment ago. */
  known(org: string, ids: readonly string[]): Promise<readonly Artifact[]>;
  /** Newest first, within the bounded window. */
  recent(query: {
    readonly type?: string;
    readonly correlationId?: string;
    readonly org: string;
    readonly limit: number;
  }): Promise<Artifact[]>;
  /** Handles tasks until it is stopped. Stopping waits for running tasks and requeues the others. */
  consume(consumer: Consumer): Service;
  /**
   * By partition, for the router and for every agent: of an org, or of all. On Kafka, where orgs share the partitions, it is
   * always of all.
   */
  lag(org?: string): Promise<readonly PartitionLagJson[]>;
  counts(): Promise<readonly AgentCounts[]>;
  /** The same for agents and orgs, in their order. On Kafka only dead letters are counted by org. */
  countsOf(of: readonly AgentOfOrg[]): Promise<readonly AgentCounts[]>;
  /**
   * Open tasks of an org by agent, up to a bound; on Kafka without those that wait for a retry. Cheap enough to ask once a
   * second while there is a backlog.
   */
  waiting(org: string): Promise<ReadonlyMap<string, number>>;
  /** The known ones; on Kafka, those in the window. `open: 0` means that nothing was open at this call. */
  correlations(names: readonly CorrelationName[]): Promise<readonly CorrelationCounts[]>;
  /** The bytes of artifacts that are not in the database, by org. */
  storedBytes?(): ReadonlyMap<string, number>;
  deadLetters(agent: string, query: DeadLetterQuery): Promise<DeadLetterPage>;
  /** The dead letters that exist, in the order of the ids. */
  deadLettersById(
    agent: string,
    orgs: readonly string[],
    ids: readonly string[],
  ): Promise<readonly DeadLetter[]>;
}
