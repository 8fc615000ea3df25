import type { Consumer } from "./board.ts";
import type { Artifact } from "./model/artifact.ts";
import type { DeadLetter, Settlement, Task } from "./model/task.ts";

/** The result of routing: a task for each matching agent, and a dead letter where matching failed. */
export interface Routing {
  readonly tasks: readonly Task[];
  readonly dead: readonly DeadLetter[];
}

/** An artifact and its routing. */
export interface Routed {
  readonly artifact: Artifact;
  readonly routing: Routing;
}

/** The properties of an agent that a backend uses. */
export type BoardAgent = Pick<Consumer, "agent" | "order" | "strict">;

/** A dead letter of an agent. */
export interface DeadLetterName {
  readonly org: string;
  readonly id: string;
}

/** The options that the plane passes to a backend. */
export interface BoardOptions {
  /** Every agent of the app, wherever it runs. */
  readonly agents: readonly BoardAgent[];
  /** Pure except for the user's predicates; never throws. */
  route(artifact: Artifact): Routing;
  /** Counts the replayed ones of these dead letters, for a backend that does not delete them. */
  replayed?(agent: string, letters: readonly DeadLetterName[]): Promise<number>;
  /** Shares the counts of running tasks between servers, for a backend that only knows its own. */
  running?(own: ReadonlyMap<string, number>): Promise<ReadonlyMap<string, number>>;
  readonly observer: BoardObserver;
}

/** Receives what this process did, after it is durable. */
export interface BoardObserver {
  published(artifacts: readonly Artifact[]): void;
  /** `position` is the artifact's position, if the backend knows it. */
  routed(artifact: Artifact, tasks: readonly Task[], position?: RecordPosition): void;
  settled(task: Task, settlement: Settlement, position: RecordPosition): void;
  /** A settled task was delivered again and skipped. */
  repeated(task: Task): void;
  /** A record could not be decoded and is a dead letter of this agent or of the router. */
  unreadable?(agent: string): void;
}

/** The position of a record in a Kafka topic or a table. */
export interface RecordPosition {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
  /** Kafka's transactional id, if there was a transaction. */
  readonly transactionId?: string;
}
