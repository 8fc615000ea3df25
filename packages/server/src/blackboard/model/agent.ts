import type { Order } from "../board.ts";
import type { Artifact, ArtifactDraft } from "./artifact.ts";

/** What an agent is given to do. */
export interface AgentTask {
  readonly id: string;
  /** The first of its artifacts: the only one, unless the agent has a batch or a join. */
  readonly artifact: Artifact;
  readonly artifacts: readonly Artifact[];
  readonly correlationId: string | undefined;
  /** 1 at first. */
  readonly attempt: number;
  /** The same for every attempt: hand it to whatever the work calls, since an agent may run twice. */
  readonly idempotencyKey: string;
  /** W3C trace context of this execution, if it is traced. */
  readonly traceparent: string | undefined;
}

/** What the agent publishes: nothing, one artifact or several. They become visible together, once. */
export type AgentOutput = ArtifactDraft | readonly ArtifactDraft[] | undefined;

/** How failures are met. Times are milliseconds. */
export interface RetryOptions {
  /** How often a task is tried at all; 5 unless set. */
  readonly attempts?: number;
  /** The first delay, doubled for each failure, with jitter; 1,000 unless set. */
  readonly base?: number;
  /** The longest delay; 300,000 unless set. */
  readonly cap?: number;
  /** What an error means, by its type; RetryableError, FatalError and RateLimitedError say it themselves. */
  readonly classify?: (error: unknown) => "retryable" | "fatal" | { readonly rateLimitedMs: number };
}

/** Gathers artifacts until there are enough of them, or time is up. */
export interface BatchOptions {
  readonly size: number;
  /** Milliseconds after the first. */
  readonly timeout: number;
}

/** Waits until there is an artifact of each type with the same value of `by`. */
export interface JoinOptions {
  /** "correlation_id" unless set. What it gives null for is not joined. */
  readonly by?: "correlation_id" | ((artifact: Artifact) => string | null);
  readonly types: readonly string[];
  /** Milliseconds after the first; an incomplete one is dropped then. */
  readonly within: number;
}

/** What an agent consumes, and how it works. Times are milliseconds. */
export interface AgentOptions {
  readonly consumes: string | readonly string[];
  /** Pure. An artifact for which it throws becomes a dead letter of this agent. */
  readonly where?: (artifact: Artifact) => boolean;
  /** All of these must be on the artifact. */
  readonly tags?: readonly string[];
  /** Producers: "agent:<name>", "user:<subject>", "schedule:<name>", or one with `*` at its end. */
  readonly from?: readonly string[];
  /** What it may see of labelled artifacts. */
  readonly labels?: readonly string[];
  readonly batch?: BatchOptions;
  readonly join?: JoinOptions;
  /** Tasks at a time in each process; 10 unless set. */
  readonly concurrency?: number;
  /** What keeps tasks in order; the artifact's key unless set. */
  readonly key?: (artifact: Artifact) => string;
  /** "key" unless set. */
  readonly order?: Order;
  /** A retry holds the later tasks of its key. */
  readonly strict?: boolean;
  /** At most so many starts in so many milliseconds, in each process. */
  readonly rate?: { readonly limit: number; readonly per: number };
  readonly retry?: RetryOptions;
  /** How long one attempt may take; 300,000 unless set. */
  readonly timeout?: number;
  /** Higher goes first where agents share a process's slots; 0 unless set. */
  readonly priority?: number;
  /** Whether it may consume what it published itself. */
  readonly selfTrigger?: boolean;
  /** A person must approve each task before it runs. */
  readonly approval?: boolean | ((artifact: Artifact) => boolean);
  /** The work. Without it the agent's tasks are claimed over HTTP. */
  // biome-ignore lint/suspicious/noConfusingVoidType: an agent that publishes nothing has no return.
  readonly run?: (task: AgentTask, signal: AbortSignal) => Promise<AgentOutput | void> | AgentOutput | void;
}

/** An agent, checked, with its defaults. */
export interface Agent {
  readonly name: string;
  readonly consumes: readonly string[];
  readonly options: Readonly<AgentOptions>;
  readonly order: Order;
  readonly strict: boolean;
  readonly concurrency: number;
  readonly priority: number;
  readonly timeoutMs: number;
  readonly retry: Required<Omit<RetryOptions, "classify">> & Pick<RetryOptions, "classify">;
}

/** Something that is published by the clock, once however many servers run. */
export interface Schedule {
  readonly name: string;
  /** Five or six fields, such as "0 7 * * 1-5". */
  readonly cron: string;
  /** An IANA name; UTC unless set. */
  readonly timezone?: string;
  readonly org: string;
  readonly artifact: ArtifactDraft;
}
