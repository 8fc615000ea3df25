import type { Wakeups } from "../database/wakeups.ts";
import type { EngineFactory, PublishArtifacts } from "./engines/engine.ts";

/** What the settings say about conversations. */
export interface ConversationSettings {
  /** How long a reader is kept after the last socket has left. */
  readonly graceMs: number;
  /** What a reader keeps in memory for sockets that come back soon. */
  readonly recentBytes: number;
  /** How often logs are asked for news that nobody told of. */
  readonly pollMs: number;
  /** How often the bookmark `ui` follows the readers. */
  readonly bookmarkMs: number;
  /** How long a server may be silent before its runs are taken from it. */
  readonly leaseMs: number;
  readonly runTimeoutMs: number;
  readonly runMaxBytes: number;
  /** How many runs may wait in one conversation. */
  readonly queueLimit: number;
  /** How long an engine is kept without a turn. */
  readonly engineIdleMs: number;
  readonly maxEngines: number;
  /** Deltas are joined for this long, or up to this many characters. */
  readonly deltaWindowMs: number;
  readonly deltaChars: number;
  /** What the janitor keeps of each log. */
  readonly keep: { readonly ageMs: number; readonly entries: number; readonly bytes: number };
  /** How long a conversation lives after its last run. */
  readonly ttlMs: number;
  readonly janitorEveryMs: number;
}

/** A run, as the authority log knows it. */
export interface RunIdentity {
  readonly runId: string;
  readonly org: string;
  readonly subject: string;
  /** W3C traceparent of the request that asked for it. */
  readonly trace: string | null;
}

/** The events that a run leaves there. */
export type RunEventType = "run.started" | "run.completed" | "run.failed" | "run.stopped";

/** Where runs leave their events. The same event of a run may be appended more than once, and counts once. */
export interface RunEvents {
  append(run: RunIdentity, type: RunEventType, data: object): Promise<void>;
}

/** What the conversation plane is made with. */
export interface ConversationOptions extends ConversationSettings {
  readonly engine: EngineFactory;
  readonly runs: RunEvents;
  /** How what an engine makes gets onto the blackboard, in the name of a run's owner. */
  readonly publish?: (
    run: Pick<RunIdentity, "org" | "subject" | "trace">,
    drafts: Parameters<PublishArtifacts>[0],
  ) => ReturnType<PublishArtifacts>;
  readonly wakeups: Pick<Wakeups, "send">;
}
