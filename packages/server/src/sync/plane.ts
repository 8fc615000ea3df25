import type { Database } from "../database/database.ts";
import { holdLease, type Lease } from "../database/lease.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { Authority } from "../events/authority.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import { type SyncMetrics, syncMetrics } from "./metrics.ts";
import type { Mirror } from "./mirror/mirror.ts";
import { type MirrorFollowers, startMirror } from "./mirror/mirror_follower.ts";
import type { Models } from "./model.ts";
import { observeSync } from "./observe.ts";
import { type Hub, openHub } from "./read/hub.ts";
import { openJournal, type ReadLimits } from "./read/journal.ts";
import { createReadModels } from "./read/read_models.ts";
import { recordStart } from "./read/starts.ts";
import { mayWaitMs, tellsItselfAfterMs } from "./read/wakeup_pace.ts";
import { type ErasedEvents, type ErasureStep, eraseEvents, eraseRuns } from "./rebuild/erasure.ts";
import { startRetention } from "./rebuild/retention.ts";
import { type Projector, type ProjectorState, startProjector } from "./write/projector.ts";
import { openSink, type Sink } from "./write/sink.ts";

export interface SyncSettings {
  readonly inline: boolean;
  readonly batch: ReadLimits;
  readonly tailBytes: number;
  readonly pollMs: number;
  readonly retryMs: number;
  readonly retentionMs: number;
  readonly retentionEveryMs: number;
  readonly stallMs: number;
}

export interface SyncOptions extends SyncSettings {
  readonly models: Models;
  /** The notification to other processes that a topic has updates. */
  readonly wakeups: Pick<Wakeups, "send" | "within">;
  /** A second store that gets every update. */
  readonly mirror?: Mirror | undefined;
}

/** The sync plane: events become documents, documents become a journal, the journal reaches sockets. */
export interface SyncPlane extends Service {
  readonly sink: Sink;
  readonly hub: Hub;
  readonly metrics: SyncMetrics;
  /** The state of each projection that this process runs. */
  projections(): readonly ProjectorState[];
  /** Erases a stretch of a subject's events, and its documents, or counts them. */
  erase(step: ErasureStep): Promise<ErasedEvents>;
  /** Erases the events and documents of runs that a subject started in conversations of others. */
  eraseRuns(org: string, subject: string, runIds: readonly string[]): Promise<Omit<ErasedEvents, "next">>;
  /** Wakeup: the authority log has news. */
  wakeProjectors(): void;
  /** Whether the projections run in this process: then no other process needs wakeups for events. */
  projecting(): boolean;
}

const LEASE_MS = 5_000;

/** Opens the plane on a database with the schema. */
export async function openSyncPlane(
  database: Database,
  authority: Authority,
  context: Context,
  options: SyncOptions,
): Promise<SyncPlane> {
  const { models } = options;
  await createReadModels(database, models.all);
  // Before the first write: the database may have been restored from a backup.
  database.onNewServer((tx) => recordStart(tx, context));
  await database.interactive((tx) => recordStart(tx, context));
  const metrics = syncMetrics(
    context.telemetry.meter,
    models.all.map(({ topic }) => topic),
  );
  const journal = openJournal(database, metrics);
  const hub = openHub(context, { ...options, database, journal, metrics });
  const committed = (topic: string, updates: number, notified: boolean) => {
    hub.onWakeup(topic);
    second?.wake(topic);
    if (!notified) options.wakeups.send(topic, mayWaitMs(updates));
  };
  const sink = openSink(database, context, {
    inline: options.inline,
    metrics,
    wakeup: (topic, updates, tookMs) => options.wakeups.within(topic, tellsItselfAfterMs(updates, tookMs)),
    onCommit: committed,
  });

  // One process at a time projects and trims, by lease; another takes over when it dies or stalls.
  let second: MirrorFollowers | undefined;
  const wake = new Wake();
  const lease: Lease = holdLease(database, context, "sync", LEASE_MS, () => wake.wake());
  // No writes before the feeds know whether the database server is another one.
  const projecting = () => lease.held() && hub.settled();
  const projectors: Projector[] = models.all.map((model) =>
    startProjector(model, context, {
      database,
      authority,
      sink,
      retryMs: options.retryMs,
      active: projecting,
      era: () => hub.era(),
    }),
  );
  // One poll for all: woken together, they share one read of the log.
  const polling = runLoop(context, "projections", {
    wake,
    idleMs: options.pollMs,
    async step() {
      for (const projector of projectors) projector.wake();
      return false;
    },
  });
  const retention = startRetention(database, context, {
    models,
    keepMs: options.retentionMs,
    everyMs: options.retentionEveryMs,
    metrics,
    inline: options.inline,
    onExpired: (topic, documents) => committed(topic, documents, false),
    active: () => lease.held(),
  });
  if (options.mirror) {
    second = startMirror(models, context, {
      database,
      sink: options.mirror,
      metrics,
      pollMs: options.pollMs,
      active: () => lease.held(),
    });
  }
  const unobserve = observeSync(context, {
    database,
    hub,
    authority,
    projections: () => projectors.map((p) => p.state()),
    stallMs: options.stallMs,
    retentionMs: options.retentionMs,
  });

  return {
    sink,
    hub,
    metrics,
    projections: () => projectors.map((projector) => projector.state()),
    async erase(step) {
      const erased = await eraseEvents(database, models.all, step, options.inline);
      if (!step.dryRun) for (const [topic, documents] of erased.changed) committed(topic, documents, false);
      return erased;
    },
    async eraseRuns(org, subject, runIds) {
      const erased = await eraseRuns(database, models.all, { org, subject, runIds }, options.inline);
      for (const [topic, documents] of erased.changed) committed(topic, documents, false);
      return erased;
    },
    wakeProjectors: () => wake.wake(),
    projecting,
    async stop() {
      unobserve();
      const background = [polling, ...projectors, retention, ...(second ? [second] : [])];
      await Promise.all(background.map((service) => service.stop()));
      await Promise.all([lease.stop(), hub.stop()]);
    },
  };
}
