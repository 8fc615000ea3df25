import type { AgentStateJson, PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { OverviewJson, Plain } from "@khala/contracts/ops/v1";
import type { BlackboardPlane } from "../../blackboard/plane.ts";
import { isoTime } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { SyncPlane } from "../../sync/plane.ts";
import type { Health } from "../http/health.ts";
import { blackboardState, conversationState, syncState } from "./plane_states.ts";
import { openProcessMonitor } from "./process_monitor.ts";
import { Rates, rounded } from "./rates.ts";

/** A snapshot, as it is sent. */
export type Snapshot = Plain<OverviewJson>;

/** How this server is, for however many want to know. */
export interface Overview extends Service {
  /** A snapshot that is not older than the interval. */
  get(): Promise<Snapshot>;
  /** Calls `listener` with each new snapshot until the returned function is called. Nothing is measured without a listener. */
  watch(listener: (snapshot: Snapshot) => void): () => void;
  /** Whether there is a listener. */
  readonly watched: boolean;
}

export interface OverviewOptions {
  readonly intervalMs: number;
  readonly health: Health;
  readonly sync: Pick<SyncPlane, "hub">;
  readonly blackboard: Pick<BlackboardPlane, "agents" | "lag">;
  readonly backends: { readonly conversations: string; readonly blackboard: string };
  /** From this lag on the board refuses. */
  readonly refuseLag: number;
  /** The gateway's counters since the start. */
  readonly traffic: () => {
    readonly sockets: number;
    readonly messages: number;
    readonly bytes: number;
    readonly errors: number;
    readonly refused: number;
    readonly slowCloses: number;
  };
}

/** A part of the server that does not answer must not keep the overview from answering. */
const ANSWER_MS = 3_000;
const LATELY_MS = 300_000;
const RESOLUTION_MS = 20;
/** The event loop is measured by a timer, which would keep an unwatched server busy. */
const WATCHED_MS = 10_000;

/** Opens the overview. */
export function openOverview(context: Context, options: OverviewOptions): Overview {
  const { clock } = context;
  const started = clock.now();
  const meter = openProcessMonitor(clock, { resolutionMs: RESOLUTION_MS, restAfterMs: WATCHED_MS });
  const rates = new Rates(started);
  const listeners = new Set<(snapshot: Snapshot) => void>();
  /** Runs that had failed by then. */
  const failures: { readonly at: number; readonly failed: number }[] = [{ at: started, failed: 0 }];
  let last: { readonly at: number; readonly snapshot: Promise<Snapshot> } | undefined;
  /** The last snapshot that listeners received. */
  let latest: Snapshot | undefined;
  let watching = false;
  let cancel = () => {};
  let stopped = false;

  function get(): Promise<Snapshot> {
    if (last && clock.now() - last.at < options.intervalMs) return last.snapshot;
    const snapshot = take();
    const made = { at: clock.now(), snapshot };
    last = made;
    // The next one asks again.
    snapshot.catch(() => {
      if (last === made) last = undefined;
    });
    return snapshot;
  }

  async function take(): Promise<Snapshot> {
    const silent = { database: { state: "unavailable" as const, message: SILENT } };
    const [dependencies, agents, lag, metrics] = await Promise.all([
      withTimeout(clock, ANSWER_MS, options.health(), silent),
      withinOr<readonly AgentStateJson[]>(options.blackboard.agents(), []),
      withinOr<readonly PartitionLagJson[]>(options.blackboard.lag(), []),
      context.telemetry.metricValues(),
    ]);
    const now = clock.now();
    const { sum } = metrics;
    const traffic = options.traffic();
    const heads = options.sync.hub.lastPoll().heads?.topics ?? new Map<string, { head: bigint }>();
    const feeds = options.sync.hub.open();
    let updates = 0n;
    for (const { head } of heads.values()) updates += head;
    const unread = feeds.reduce((total, feed) => total + Number(feed.lag().rows), 0);
    const failed =
      sum("khala_conversation_runs_total", { outcome: "failed" }) +
      sum("khala_conversation_runs_total", { outcome: "lost" });
    const total = (field: "waiting" | "running" | "dead") =>
      agents.reduce((all, agent) => all + Number(agent[field] ?? 0), 0);
    const rate = rates.at(now);
    return {
      at: isoTime(now),
      uptime_s: rounded((now - started) / 1_000),
      process: meter.sample(),
      sync: {
        ...syncState(dependencies),
        // The first snapshot of an existing database has no rate yet.
        updates_per_s: heads.size > 0 ? rate("updates", Number(updates), Number(updates)) : 0,
        topics: heads.size,
        lag: unread + sum("khala_sync_projection_lag"),
        subscribers: feeds.reduce((all, feed) => all + feed.liveCount, 0),
        resyncs: sum("khala_sync_stale_cursors_total"),
      },
      conversations: {
        ...conversationState(dependencies, failedLately(now, failed)),
        backend: options.backends.conversations,
        readers: sum("khala_conversation_readers"),
        sockets: sum("khala_conversation_sockets"),
        running: sum("khala_conversation_runs_running"),
        events_per_s: rate("events", sum("khala_conversation_reads_total")),
        resyncs: sum("khala_conversation_resyncs_total"),
        failed,
      },
      blackboard: {
        ...blackboardState(dependencies, agents, lag, options.refuseLag),
        backend: options.backends.blackboard,
        tasks_per_s: rate("tasks", sum("khala_board_tasks_total")),
        published_per_s: rate("published", sum("khala_board_artifacts_total")),
        lag: lag.reduce((all, partition) => all + Number(partition.lag ?? 0), 0),
        waiting: total("waiting"),
        running: total("running"),
        retried: sum("khala_board_retries_total"),
        dead: total("dead"),
        agents: agents.length,
        paused: agents.filter(({ state }) => state === "paused").length,
      },
      gateway: {
        sockets: traffic.sockets,
        messages_per_s: rate("messages", traffic.messages),
        bytes_per_s: rate("bytes", traffic.bytes),
        slow_closes: traffic.slowCloses,
        errors_per_s: rate("errors", traffic.errors),
        refused: traffic.refused,
      },
    };
  }

  /** Health reports a part that fails; its figures here are 0. */
  async function withinOr<T>(work: Promise<T>, otherwise: T): Promise<T> {
    const answered = work.catch((error: Error) => {
      context.log.debug({ err: error.message }, "a part of the overview is missing");
      return otherwise;
    });
    return withTimeout(clock, ANSWER_MS, answered, otherwise);
  }

  function failedLately(now: number, failed: number): number {
    failures.push({ at: now, failed });
    while (failures.length > 1 && failures[1]!.at <= now - LATELY_MS) failures.shift();
    return failed - failures[0]!.failed;
  }

  async function watchOn(): Promise<void> {
    if (stopped || listeners.size === 0) {
      watching = false;
      latest = undefined;
      return;
    }
    try {
      const snapshot = await get();
      latest = snapshot;
      for (const listener of [...listeners]) listener(snapshot);
    } catch (error) {
      context.log.warn({ err: (error as Error).message }, "the overview failed; it is retried");
    }
    cancel = clock.after(options.intervalMs, () => void watchOn());
  }

  return {
    get,
    watch(listener) {
      listeners.add(listener);
      if (!watching) {
        watching = true;
        void watchOn();
      } else if (latest) {
        const known = latest;
        queueMicrotask(() => listeners.has(listener) && listener(known));
      }
      return () => {
        listeners.delete(listener);
      };
    },
    get watched() {
      return listeners.size > 0;
    },
    async stop() {
      stopped = true;
      cancel();
      listeners.clear();
      meter.stop();
      await last?.snapshot.catch(() => {});
    },
  };
}

const SILENT = `No answer within ${ANSWER_MS} ms.`;
