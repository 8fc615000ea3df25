import type { StoredBytes } from "../database/stored_bytes.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { EngineFactory, PublishArtifacts } from "./engines/engine.ts";
import type { Files } from "./files/files.ts";

/** The prefix of wakeups that ask to stop a run. */
export const STOP_WAKEUP = "stop:";

/** The settings of conversations. */
export interface ConversationSettings {
  /** How long a reader stays open after its last socket has left. */
  readonly graceMs: number;
  /** The size of a reader's in-memory tail, for sockets that resume soon. */
  readonly recentBytes: number;
  /** How often logs are polled for entries whose notification was lost. */
  readonly pollMs: number;
  /** How often the bookmark `ui` follows the readers. */
  readonly bookmarkMs: number;
  /** How long a run's lease lasts without a renewal. */
  readonly leaseMs: number;
  readonly runTimeoutMs: number;
  readonly runMaxBytes: number;
  /** The most queued runs per conversation. */
  readonly queueLimit: number;
  /** How long an engine stays cached without a turn. */
  readonly engineIdleMs: number;
  readonly maxEngines: number;
  /** The most live runs, and messages per second, of one org on this server. */
  readonly maxRunsPerOrg: number;
  readonly maxMessagesPerOrg: number;
  /** Deltas are batched for this long, or up to this many characters. */
  readonly deltaWindowMs: number;
  readonly deltaChars: number;
  /** The retention of each log. */
  readonly retention: { readonly ageMs: number; readonly entries: number; readonly bytes: number };
  /** How long a log lives after its last entry. Its messages stay. */
  readonly ttlMs: number;
  /** How long a conversation is kept after its last change; undefined: for ever. */
  readonly keepMs?: number | undefined;
  readonly janitorEveryMs: number;
}

/** A run in the authority log. */
export interface RunIdentity {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  /** W3C traceparent of the request that started it. */
  readonly trace: string | null;
}

/** The authority events of a run. */
export type RunEventType = "run.started" | "run.completed" | "run.failed" | "run.stopped";

/** Appends run events to the authority log. Idempotent per run and type. */
export interface RunEvents {
  append(run: RunIdentity, type: RunEventType, data: object): Promise<void>;
}

/** The dependencies and settings of the conversation plane. */
export interface ConversationOptions extends ConversationSettings {
  readonly engine: EngineFactory;
  readonly runs: RunEvents;
  /** Publishes an engine's artifacts on the blackboard, as the run's owner. */
  readonly publish: (
    run: Pick<RunIdentity, "org" | "subject" | "trace"> & {
      readonly conversation: { readonly conv_id: string; readonly generation: string };
    },
    drafts: Parameters<PublishArtifacts>[0],
  ) => ReturnType<PublishArtifacts>;
  readonly wakeups: Pick<Wakeups, "send">;
  readonly files: Files;
  /** Limits what orgs store. */
  readonly stored?: StoredBytes;
}
