import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { Service } from "../kit/service.ts";
import type { Artifact } from "./model/artifact.ts";
import type { DeadLetter, Settlement, Task } from "./model/task.ts";

/** How the tasks of an agent follow each other: by key, by partition, or as they come. */
export type Order = "key" | "partition" | "none";

/** Who works on the tasks of an agent, in this process. */
export interface Consumer {
  readonly agent: string;
  readonly order: Order;
  /** A retry holds the later tasks of its key; else they pass it. */
  readonly strict: boolean;
  /** Tasks at a time, in this process. */
  readonly concurrency: number;
  /** Its work goes on elsewhere: stopping waits for none of it, and gives it back as if it had not begun. */
  readonly away?: boolean;
  /** Resolves when more work may be taken: not while the agent is paused or its breaker is open. */
  gate(signal: AbortSignal): Promise<void>;
  /**
   * Does the work, outside any transaction. Never rejects, nor throws. The signal aborts when the task is not this
   * process's any more, or shutdown waits no longer: what is answered then is thrown away. What it answers at once has
   * ended: nobody keeps the signal.
   */
  handle(task: Task, signal: AbortSignal): Promise<Settlement> | Settlement;
  /** Whether work on a task that is being handled has begun; if it still waits for the gate, it may be given to others. */
  begun?(task: Task): boolean;
}

/** What an artifact leads to: a task for each agent that matches, and a dead letter where matching itself failed. */
export interface Routing {
  readonly tasks: readonly Task[];
  readonly dead: readonly DeadLetter[];
}

/** An artifact, and what it leads to. */
export interface Routed {
  readonly artifact: Artifact;
  readonly routing: Routing;
}

/** What a backend knows of an agent. */
export type BoardAgent = Pick<Consumer, "agent" | "order" | "strict">;

/** What a board is given besides its engine. */
export interface BoardOptions {
  /** Every agent of the app, whether its work is done in this process or elsewhere. */
  readonly agents: readonly BoardAgent[];
  /** Pure but for user predicates; never throws. */
  route(artifact: Artifact): Routing;
  /** Whether this process routes; one that only publishes and looks does not. */
  readonly routes: boolean;
  /** How many of these dead letters of an agent were replayed, for an engine that keeps them all the same. */
  replayed?(agent: string, ids: readonly string[]): Promise<number>;
  /** Tells the others how many tasks of each agent run here, and answers how many run everywhere: for an engine that cannot know. */
  running?(own: ReadonlyMap<string, number>): Promise<ReadonlyMap<string, number>>;
  /** Told of what happened here, for whoever shows progress. */
  readonly observer: BoardObserver;
}

/** Hears of what this process did, after it is durable. */
export interface BoardObserver {
  published(artifacts: readonly Artifact[]): void;
  /** `place` is where the artifact is, for an engine that knows. */
  routed(artifact: Artifact, tasks: readonly Task[], place?: Place): void;
  settled(task: Task, settlement: Settlement, place: Place): void;
  /** A task came again that had been settled, and was passed over. */
  repeated(task: Task): void;
  /** A record could not be read, and is a dead letter of this agent, or of the router. Where others can write records. */
  unreadable?(agent: string): void;
}

/** Where a record is: a topic of Kafka, or a table. */
export interface Place {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
  /** Kafka's transactional id, where there was a transaction. */
  readonly transactionId?: string;
}

/** A page of dead letters, newest first. */
export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[];
  readonly next?: string;
}

/** How many tasks of an agent there are. Of a long queue it may be an estimate, and some seconds old. */
export interface AgentCounts {
  readonly agent: string;
  /** Ready, held back by their key, or waiting for a retry. */
  readonly waiting: number;
  readonly running: number;
  /** Those that nobody has replayed. */
  readonly dead: number;
}

/** A correlation of an org: another org may use the same name for one of its own. */
export interface CorrelationName {
  readonly org: string;
  readonly name: string;
}

/** How far a correlation has come. */
export interface CorrelationCounts {
  readonly correlationId: string;
  readonly org: string;
  readonly artifacts: number;
  readonly open: number;
  /** Of the open ones those that failed, and are tried again later. */
  readonly retrying: number;
  /** Of the open ones those that wait for their batch, where the engine makes batches. */
  readonly gathering: number;
  readonly done: number;
  readonly dead: number;
}

/**
 * The flow of artifacts and tasks: Postgres, Kafka. Publication is exactly once, execution at least once with an
 * idempotency key, and a task that was settled does not run again.
 */
export interface Board extends Service {
  /** Publishes all or none, with their index, as one unit; an id and version that are there are duplicates. */
  publish(artifacts: readonly Artifact[]): Promise<readonly ("published" | "duplicate")[]>;
  /** Puts tasks before their agents without routing: all or none. One that was settled, by id and replay, is passed over. */
  enqueue(tasks: readonly Task[]): Promise<void>;
  /** The newest version. */
  get(id: string): Promise<Artifact | undefined>;
  /** Newest first, within the bounded window. */
  recent(query: {
    readonly type?: string;
    readonly correlationId?: string;
    readonly org: string;
    readonly limit: number;
  }): Promise<Artifact[]>;
  /** Works on tasks until it is stopped; stopping waits for what is under way, and gives the rest back. */
  consume(consumer: Consumer): Service;
  /** By partition, for the router and for every agent. */
  lag(): Promise<readonly PartitionLagJson[]>;
  counts(): Promise<readonly AgentCounts[]>;
  /** Of those that are known; on Kafka, of those in the window. One of which nothing is open had nothing open at this call. */
  correlations(names: readonly CorrelationName[]): Promise<readonly CorrelationCounts[]>;
  deadLetters(
    agent: string,
    query: { readonly after?: string; readonly limit: number; readonly correlation?: CorrelationName },
  ): Promise<DeadLetterPage>;
  deadLetter(agent: string, id: string): Promise<DeadLetter | undefined>;
  /** Those of these that are there, in the order of the ids; found together. */
  deadLettersById(agent: string, ids: readonly string[]): Promise<readonly DeadLetter[]>;
}
