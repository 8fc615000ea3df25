import { type Database, isDataError } from "../../database/database.ts";
import { type Authority, readStream } from "../../events/authority.ts";
import type { AuthorityEvent } from "../../events/stream.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { recordSpan } from "../../kit/telemetry.ts";
import { storeExpiries } from "../expiry.ts";
import type { Model } from "../model.ts";
import { type CurrentDocument, loadCurrent } from "../read/read_models.ts";
import {
  countFailedStreams,
  errorText,
  type FailedStream,
  movePause,
  pausedStreams,
  resumeStream,
  setAside,
  takeFailedStreams,
} from "./failed_streams.ts";
import { BrokenProjection, documentsOf, foldEvents } from "./projection.ts";
import type { Sink } from "./sink.ts";
import type { CheckpointMove } from "./write_fast_path.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** The state of a projection. */
export interface ProjectorState {
  readonly topic: string;
  /** The newest event that is projected; undefined while another process does it. */
  readonly position: bigint | undefined;
  /** Streams that are set aside, because the projection failed at one of their events. */
  readonly failed: number;
}

/** Follows the authority log for one model. */
export interface Projector extends Service {
  state(): ProjectorState;
  /** There may be new events, or a reprojection. Nothing else wakes it but retries. */
  wake(): void;
}

export interface ProjectorOptions {
  readonly database: Database;
  readonly authority: Authority;
  readonly sink: Sink;
  /** The interval between retries of streams that are set aside. */
  readonly retryMs: number;
  /** Whether this process holds the lease. It avoids duplicate work; the checkpoint ensures correctness. */
  readonly active: () => boolean;
  /** Changes when the database may have been restored: caches are read again. */
  readonly era?: () => string;
}

const BATCH = 1_000;
/** Maximum delay between two batches. */
const MAX_REST_MS = 5;
const CACHED_DOCUMENTS = 20_000;
/** The limit of one retry of streams that are set aside, so that other streams do not wait for it. */
const RETRIED = { streams: 10, events: 200 };
/** Events without a change after which the checkpoint is stored anyway. */
const UNSTORED_EVENTS = 10_000n;

/**
 * Starts the projector of a model. Any number of processes may run one: the checkpoint moves in the sink's
 * transaction, from the position that was read, so of two that did the same work only one commits.
 *
 * An event that the model cannot take sets its stream aside, in the transaction that moves the checkpoint past it. All other
 * streams continue. Streams set aside are retried from time to time, and so after a restart with better code.
 */
export function startProjector(model: Model, context: Context, options: ProjectorOptions): Projector {
  const { database, authority, sink } = options;
  const documents = new Map<string, CurrentDocument>();
  /** As of the last load, which named every document that is missing. */
  let purgedVersion = 0n;
  const wake = new Wake();
  /** The position, and the stored checkpoint. */
  let position: bigint | undefined;
  let stored = 0n;
  let generation = 0n;
  let era = "";
  let failed = 0;
  let retryAt = 0;
  let batch = BATCH;

  async function step(signal: AbortSignal): Promise<boolean> {
    if (!options.active()) {
      reset();
      return false;
    }
    const now = options.era?.() ?? "";
    if (now !== era) reset();
    era = now;
    if (position === undefined) {
      const checkpoint = await readCheckpoint(database, model.topic);
      ({ generation } = checkpoint);
      stored = checkpoint.position;
      position = stored;
      failed = await countFailedStreams(database, model.topic);
    }
    const moved = failed > 0 && context.clock.now() >= retryAt && (await retry());
    const started = context.clock.now();
    const events = await authority.read(position, batch);
    if (events.length === 0) return (await rebuiltMeanwhile()) || moved;
    await load(events);
    const paused = failed > 0 ? await pausedStreams(database, model.topic, false, events) : new Set<string>();
    const { writes, failures } = foldEvents(model, events, documents, paused, purgedVersion);
    const upTo = events.at(-1)!.position;
    // Events of other models need no commit: reading them again is cheap.
    if (writes.length > 0 || failures.length > 0 || upTo - stored >= UNSTORED_EVENTS) {
      await commit(events, writes, failures, { from: stored, to: upTo, generation });
      stored = upTo;
      traceWrites(writes, started);
    }
    position = upTo;
    forgetOldest();
    const full = events.length === batch;
    batch = Math.min(BATCH, batch * 2);
    // Under load, larger batches are cheaper per event.
    if (!moved && !full && writes.length > 1)
      await sleep(context.clock, Math.min(context.clock.now() - started, MAX_REST_MS), signal);
    return moved || full;
  }

  /** A reprojection may have written since: events that changed nothing must be applied again. */
  async function rebuiltMeanwhile(): Promise<boolean> {
    if (position === stored || generation === (await readCheckpoint(database, model.topic)).generation)
      return false;
    reset();
    return true;
  }

  /** Isolates an event that cannot be stored, by halving the batch, and sets its stream aside. */
  async function commit(
    events: readonly AuthorityEvent[],
    writes: readonly DocumentWrite[],
    failures: readonly BrokenProjection[],
    move: CheckpointMove,
  ): Promise<void> {
    const expiries = storeExpiries(model, writes);
    const beside = [
      ...(expiries ? [expiries] : []),
      ...(failures.length > 0 ? [setAside(model.topic, false, failures)] : []),
    ];
    try {
      await sink.commit(model, writes, move, beside);
    } catch (error) {
      if (!isDataError(error)) throw error;
      if (events.length > 1) {
        batch = Math.max(1, events.length >> 1);
        throw error;
      }
      documents.clear();
      const failure = new BrokenProjection(model, events[0]!, error);
      return commit(events, [], [failure], move);
    }
    if (failures.length === 0) return;
    failed += failures.length;
    const [{ event, message }] = failures as [BrokenProjection];
    const about = { topic: model.topic, streams: failures.length, position: event.position.toString() };
    context.log.error({ ...about, err: message }, "a projection failed; the stream is set aside");
  }

  /** Tries some of what is set aside again. Resolves with whether any of it moved on. */
  async function retry(): Promise<boolean> {
    retryAt = context.clock.now() + options.retryMs;
    failed = await countFailedStreams(database, model.topic);
    let moved = false;
    for (const stream of await takeFailedStreams(database, model.topic, RETRIED.streams))
      moved = (await retryStream(stream, RETRIED.events)) || moved;
    if (moved) retryAt = 0;
    return moved;
  }

  /** Projects the events of a stream from the failed one on, up to the position of the others, then ends its pause. */
  async function retryStream(stream: FailedStream, limit: number): Promise<boolean> {
    const page = await readStream(database, stream, stream.seq - 1n, limit);
    const events = page.filter((event) => event.position <= position!);
    await load(events);
    const { writes, failures } = foldEvents(model, events, documents, new Set(), purgedVersion);
    const [failure] = failures;
    if (failure?.event.seq === stream.seq) return false;
    const ended = !failure && events.length < limit;
    const next = failure
      ? { ...stream, seq: failure.event.seq, position: failure.event.position, error: errorText(failure) }
      : { ...stream, seq: stream.seq + BigInt(events.length) };
    const pause = ended ? resumeStream(model.topic, stream) : movePause(model.topic, next);
    try {
      const expiries = storeExpiries(model, writes);
      const beside = [pause, ...(expiries ? [expiries] : [])];
      await sink.commit(model, writes, { from: stored, to: position!, generation }, beside);
    } catch (error) {
      if (!isDataError(error)) throw error;
      documents.clear();
      return limit > 1 && retryStream(stream, 1);
    }
    stored = position!;
    if (ended) failed--;
    return true;
  }

  function traceWrites(writes: readonly DocumentWrite[], from: number): void {
    for (const { trace, docKey, org } of writes) {
      const attributes = { "khala.topic": model.topic, "khala.doc_key": docKey };
      recordSpan(context.telemetry, trace, {
        name: `project ${model.topic}`,
        from,
        to: context.clock.now(),
        org,
        attributes,
      });
    }
  }

  async function load(events: readonly AuthorityEvent[]): Promise<void> {
    const named = [...documentsOf(model, events)];
    const missing = named.filter(([id]) => !documents.has(id)).map(([, name]) => name);
    if (missing.length === 0) return;
    const loaded = await loadCurrent(database, model, missing);
    for (const [id, current] of loaded.documents) documents.set(id, current);
    ({ purgedVersion } = loaded);
  }

  function reset(): void {
    documents.clear();
    position = undefined;
    failed = 0;
  }

  function forgetOldest(): void {
    for (const key of documents.keys()) {
      if (documents.size <= CACHED_DOCUMENTS) break;
      documents.delete(key);
    }
  }

  const loop = runLoop(context, `projector ${model.topic}`, {
    wake,
    idleMs: options.retryMs,
    step,
    // The cache may differ from what was committed: read it again.
    onError: reset,
  });

  return {
    state: () => ({ topic: model.topic, position, failed }),
    wake: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

/** The stored checkpoint of a projection. */
export async function readCheckpoint(database: Database, topic: string) {
  const [row] = await database.query<{ position: bigint; generation: bigint }>({
    name: "sync_checkpoint",
    text: "SELECT position, generation FROM runtime.sync_checkpoints WHERE topic = $1",
    values: [topic],
  });
  if (!row) throw new Error(`The topic ${topic} has no checkpoint.`);
  return row;
}
