import type { ObservableResult } from "@opentelemetry/api";
import type { Database } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { SyncMetrics } from "../metrics.ts";
import type { Model, Models } from "../model.ts";
import { BEFORE_ALL, type DocumentName } from "../read/read_models.ts";
import type { Mirror, MirrorUpdate } from "./mirror.ts";
import { listUpdates, movePosition, readPosition, readUpdates, setPosition } from "./mirror_source.ts";

/** Sends the updates of one topic to a mirror. */
export interface MirrorFollower extends Service {
  /** Journal rows that the mirror does not have yet, as last read. */
  lag(): bigint;
  /** Wakeup: the topic has news. */
  wake(): void;
}

export interface FollowerOptions {
  readonly database: Database;
  readonly sink: Mirror;
  readonly metrics: Pick<SyncMetrics, "mirror">;
  readonly pollMs: number;
  /** The timeout of a batch. */
  readonly timeoutMs: number;
  /** The backoff after a failure. */
  readonly retryMs: { readonly base: number; readonly cap: number };
  /** Whether this process holds the lease. */
  readonly active: () => boolean;
}

const MAX_ROWS = 200;
const MAX_BYTES = 1 << 20;

/** A full copy in progress: it includes everything up to `watermark`. */
interface Listing {
  readonly epoch: string;
  readonly watermark: bigint;
  readonly after: DocumentName;
}

/**
 * Follows a topic's journal for a mirror, in order, at least once. It reads committed rows only, so a slow
 * or broken mirror never delays a writer.
 */
export function startMirrorFollower(
  model: Model,
  context: Context,
  options: FollowerOptions,
): MirrorFollower {
  const { database, sink, metrics } = options;
  const { topic } = model;
  const wake = new Wake();
  let listing: Listing | undefined;
  let lag = 0n;
  let failures = 0;
  let rows = MAX_ROWS;

  async function step(signal: AbortSignal): Promise<boolean> {
    if (!options.active()) {
      listing = undefined;
      lag = 0n;
      return false;
    }
    const place = await readPosition(database, topic, sink.name);
    const { epoch, storedEpoch, watermark, head } = place;
    if (watermark === null) {
      if (listing?.epoch !== epoch) listing = { epoch, watermark: head, after: BEFORE_ALL };
      lag = head - place.floor;
      return list(listing, signal);
    }
    listing = undefined;
    lag = head - watermark;
    if (lag === 0n) return false;
    const page = await readUpdates(database, model, watermark, { rows, bytes: MAX_BYTES });
    if (!page) return true;
    if (!(await publish(epoch, page.updates, signal))) return true;
    await movePosition(database, topic, sink.name, { epoch, storedEpoch, from: watermark, to: page.through });
    lag = head - page.through;
    return true;
  }

  async function list(now: Listing, signal: AbortSignal): Promise<boolean> {
    const updates = await listUpdates(database, model, now.after, { rows, bytes: MAX_BYTES });
    const last = updates.at(-1);
    if (!last) {
      await setPosition(database, topic, sink.name, now);
      listing = undefined;
    } else if (await publish(now.epoch, updates, signal)) {
      listing = { ...now, after: last };
    }
    return true;
  }

  /** Whether the mirror stored them. After a failure it backs off, then sends fewer. */
  async function publish(
    epoch: string,
    updates: readonly MirrorUpdate[],
    signal: AbortSignal,
  ): Promise<boolean> {
    if (updates.length === 0) return true;
    try {
      await withinTime((limit) => sink.publish({ topic, epoch, updates }, limit), signal);
    } catch (error) {
      if (signal.aborted) return false;
      metrics.mirror.add(updates.length, { topic, outcome: "failed" });
      const from = { key: updates[0]!.docKey, watermark: String(updates[0]!.watermark) };
      const about = { topic, sink: sink.name, failures, err: (error as Error).message, from };
      if (failures === 0) context.log.warn(about, "the mirror failed; retrying");
      else context.log.debug(about, "the mirror failed again");
      rows = Math.max(1, updates.length >> 1);
      await sleep(context.clock, backoff(failures++, context.random, options.retryMs), signal);
      return false;
    }
    metrics.mirror.add(updates.length, { topic, outcome: "published" });
    if (failures > 0) context.log.info({ topic, sink: sink.name, failures }, "the mirror answers again");
    failures = 0;
    rows = Math.min(MAX_ROWS, rows * 2);
    return true;
  }

  /** Enforces the timeout, even if the mirror ignores its signal. */
  async function withinTime(work: (limit: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    // The signal may have aborted during a read, and fires only once.
    signal.throwIfAborted();
    const late = new AbortController();
    const cancel = context.clock.after(options.timeoutMs, () =>
      late.abort(new Error(`no answer within ${options.timeoutMs} ms`)),
    );
    const limit = AbortSignal.any([signal, late.signal]);
    const { promise: ended, reject } = Promise.withResolvers<never>();
    limit.addEventListener("abort", () => reject(limit.reason), { once: true });
    try {
      await Promise.race([work(limit), ended]);
    } finally {
      cancel();
    }
  }

  const loop = runLoop(context, `mirror ${topic}`, { step, wake, idleMs: options.pollMs });
  return { lag: () => lag, wake: () => wake.wake(), stop: () => loop.stop() };
}

/** Dual publish: one follower per topic. */
export interface MirrorFollowers extends Service {
  /** Wakeup: the topic has news. */
  wake(topic: string): void;
}

/** Mirrors every topic, and reports the lag. */
export function startMirror(
  models: Models,
  context: Context,
  options: Omit<FollowerOptions, "timeoutMs" | "retryMs">,
): MirrorFollowers {
  const limits = { timeoutMs: 30_000, retryMs: { base: 250, cap: 30_000 } };
  const followers = new Map(
    models.all.map((model) => [model.topic, startMirrorFollower(model, context, { ...limits, ...options })]),
  );
  const gauge = context.telemetry.meter.createObservableGauge("khala_sync_mirror_lag", {
    description: "Journal rows that the mirror has not received yet, by topic",
  });
  const observe = (result: ObservableResult) => {
    if (!options.active()) return;
    for (const [topic, follower] of followers) result.observe(Number(follower.lag()), { topic });
  };
  gauge.addCallback(observe);
  return {
    wake: (topic) => followers.get(topic)?.wake(),
    async stop() {
      gauge.removeCallback(observe);
      await Promise.all([...followers.values()].map((follower) => follower.stop()));
    },
  };
}
