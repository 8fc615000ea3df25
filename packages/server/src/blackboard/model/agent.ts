import type { EventJson } from "@khala/contracts/conversation/v1";
import type { ApprovalRule } from "../../access/decider.ts";
import type { Schemas } from "../../kit/standard_schema.ts";
import type { Order } from "../board.ts";
import type { Artifact, ArtifactDraft, ArtifactOf, DraftOf } from "./artifact.ts";

/** The task as the agent's code sees it. */
export interface AgentTask<A = Artifact> {
  readonly id: string;
  /** The first artifact: the only one, unless the agent has a batch or a join. */
  readonly artifact: A;
  readonly artifacts: readonly A[];
  readonly correlationId: string | undefined;
  /** Starts at 1. */
  readonly attempt: number;
  /** The same for every attempt. Pass it to the services that the agent calls, because an agent may run twice. */
  readonly idempotencyKey: string;
  /** W3C trace context of this execution, if it is traced. */
  readonly traceparent: string | undefined;
  /** The conversation that the work belongs to: that of the run that published what it came of. */
  readonly conversation: TaskConversation | undefined;
}

/** A conversation that an agent may post to, as the author `agent:<name>`. */
export interface TaskConversation {
  readonly convId: string;
  /**
   * Adds events that belong to no run. A message without an id has the same one in every attempt, and is posted once; other
   * events are posted by each attempt.
   */
  post(...events: readonly EventJson[]): Promise<void>;
}

/** The agent's outputs: nothing, one artifact or several. They become visible together, exactly once. */
export type AgentOutput<D = ArtifactDraft> = D | readonly D[] | undefined;

/** The retry policy. Times are milliseconds. */
export interface RetryOptions {
  /** Attempts in total; default 5. */
  readonly attempts?: number;
  /** The first delay, doubled after each failure, with jitter; default 1,000. */
  readonly base?: number;
  /** The longest delay; default 300,000. */
  readonly cap?: number;
  /** Classifies an error. RetryableError, FatalError and RateLimitedError classify themselves. */
  readonly classify?: (error: unknown) => "retryable" | "fatal" | { readonly rateLimitedMs: number };
}

/** Collects artifacts until there are `size` of them, or the timeout has passed. */
export interface BatchOptions {
  readonly size: number;
  /** Milliseconds after the first artifact. */
  readonly timeout: number;
}

/** Waits until there is an artifact of each type with the same value of `by`. */
export interface JoinOptions<A = Artifact> {
  /** Default "correlation_id". An artifact for which it returns null is not joined. */
  readonly by?: "correlation_id" | ((artifact: A) => string | null);
  readonly types: readonly string[];
  /** Milliseconds after the first artifact; then an incomplete join is dropped. */
  readonly within: number;
}

/** The options of an agent: the types it consumes, and how it runs. Times are milliseconds. */
export interface AgentOptions<
  S extends Schemas = Schemas,
  Type extends string = string,
  A = ArtifactOf<S, Type>,
> {
  readonly consumes: Type | readonly Type[];
  /** The schemas of payloads, by type: the app validates them, and gives them their types here. Name every published type. */
  readonly schemas?: S;
  /** A pure filter. An artifact for which it throws becomes a dead letter of this agent. */
  readonly where?: (artifact: A) => boolean;
  /** The artifact must have all of these. */
  readonly tags?: readonly string[];
  /** Producers: "agent:<name>", "user:<subject>", "schedule:<name>", or a prefix that ends in `*`. */
  readonly from?: readonly string[];
  /** Labelled artifacts that it may consume. */
  readonly labels?: readonly string[];
  readonly batch?: BatchOptions;
  readonly join?: JoinOptions<A>;
  /** Concurrent tasks in each process; default 10. */
  readonly concurrency?: number;
  /** The ordering key of a task; default: the artifact's partition key. */
  readonly key?: (artifact: A) => string;
  /** Default "key". */
  readonly order?: Order;
  /** A retry blocks the later tasks of its key. */
  readonly strict?: boolean;
  /** At most `limit` starts in `per` milliseconds, in each process. */
  readonly rate?: { readonly limit: number; readonly per: number };
  readonly retry?: RetryOptions;
  /** The timeout of one attempt; default 300,000. */
  readonly timeout?: number;
  /** Agents with a higher priority get free slots first; default 0. */
  readonly priority?: number;
  /** Whether it may consume artifacts that it published itself. */
  readonly selfTrigger?: boolean;
  /** A person must approve each task before it runs; a rule can restrict who. */
  readonly approval?: boolean | ApprovalRule | ((artifact: A) => boolean | ApprovalRule);
  /** Makes it a tool of `/mcp`: calling it publishes what it consumes, and waits for what it publishes. A text says what it is good for. */
  readonly expose?: boolean | string;
  /** The agent's code. Without it, workers claim the tasks over HTTP. */
  readonly run?: (
    task: AgentTask<A>,
    signal: AbortSignal,
    // biome-ignore lint/suspicious/noConfusingVoidType: an agent that publishes nothing has no return.
  ) => Promise<AgentOutput<DraftOf<S>> | void> | AgentOutput<DraftOf<S>> | void;
}

/** A validated agent with its defaults. */
export interface Agent<Accepts extends object = ArtifactDraft, Publishes extends object = Artifact> {
  /** For types alone, never set: what it consumes, and what it may publish. */
  readonly types?: { readonly accepts: Accepts; readonly publishes: Publishes };
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

/** A cron schedule. It publishes once per firing, however many servers run. */
export interface Schedule {
  readonly name: string;
  /** Five or six fields, such as "0 7 * * 1-5". */
  readonly cron: string;
  /** An IANA time zone; default UTC. */
  readonly timezone?: string;
  readonly org: string;
  readonly artifact: ArtifactDraft;
}
