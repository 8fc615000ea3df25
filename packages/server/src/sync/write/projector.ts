import { type Database, isDataError } from "../../database/database.ts";
import type { Authority } from "../../events/authority.ts";
import type { AuthorityEvent } from "../../events/stream.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { recordSpan } from "../../kit/telemetry.ts";
import type { Model } from "../model.ts";
import { type CurrentDocument, loadCurrent } from "../read/read_models.ts";
import { applyEvent, BrokenProjection, keysOf } from "./projection.ts";
import type { Sink } from "./sink.ts";
import type { CheckpointMove } from "./write_fast_path.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** The state of a projection. */
export interface ProjectorState {
  readonly topic: string;
  /** The newest event that is projected; undefined while another process does it. */
  readonly position: bigint | undefined;
  /** Set while the projection is stopped at an event that fails. */
  readonly broken: BrokenProjection | undefined;
}

/** Follows the authority log for one model. */
export interface Projector extends Service {
  state(): ProjectorState;
  /** Wakeup: there may be new events. */
  wake(): void;
}

export interface ProjectorOptions {
  readonly database: Database;
  readonly authority: Authority;
  readonly sink: Sink;
  readonly pollMs: number;
  /** How often a broken projection is tried again. */
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
/** Events without a change after which the checkpoint is stored anyway. */
const UNSTORED_EVENTS = 10_000n;

/**
 * Starts the projector of a model. Any number of processes may run one: the checkpoint moves in the sink's
 * transaction, from the position that was read, so of two that did the same work only one commits.
 */
export function startProjector(model: Model, context: Context, options: ProjectorOptions): Projector {
  const { database, authority, sink } = options;
  const documents = new Map<string, CurrentDocument>();
  const wake = new Wake();
  /** The position, and the stored checkpoint. */
  let position: bigint | undefined;
  let stored = 0n;
  let generation = 0n;
  let era = "";
  let broken: BrokenProjection | undefined;
  let batch = BATCH;

  async function step(signal: AbortSignal): Promise<boolean> {
    if (!options.active()) {
      forget();
      return false;
    }
    const now = options.era?.() ?? "";
    if (now !== era) forget();
    era = now;
    if (position === undefined) {
      const checkpoint = await readCheckpoint(database, model.topic);
      ({ generation } = checkpoint);
      stored = checkpoint.position;
      position = stored;
    }
    const started = context.clock.now();
    const events = await authority.read(position, batch);
    if (events.length === 0) {
      broken = undefined;
      return rebuiltMeanwhile();
    }
    await load(events);
    const { writes, upTo, failure } = project(events);
    // Events of other models need no commit: reading them again is cheap.
    if (writes.length > 0 || upTo - stored >= UNSTORED_EVENTS) {
      await commit(events, writes, { from: stored, to: upTo, generation });
      stored = upTo;
      traceWrites(writes, started);
    }
    position = upTo;
    if (failure && failure.event.position !== broken?.event.position) {
      context.log.error(
        { topic: model.topic, position: failure.event.position.toString(), err: failure.message },
        "projection stopped",
      );
    }
    broken = failure;
    forgetOldest();
    const full = events.length === batch;
    batch = Math.min(BATCH, batch * 2);
    // Under load, larger batches are cheaper per event.
    if (!failure && !full && writes.length > 1)
      await sleep(context.clock, Math.min(context.clock.now() - started, MAX_REST_MS), signal);
    return !failure && full;
  }

  /** A reprojection may have written since: events that changed nothing must be applied again. */
  async function rebuiltMeanwhile(): Promise<boolean> {
    if (position === stored || generation === (await readCheckpoint(database, model.topic)).generation)
      return false;
    forget();
    return true;
  }

  /** Isolates an event that cannot be stored, by halving the batch. */
  async function commit(
    events: readonly AuthorityEvent[],
    writes: readonly DocumentWrite[],
    move: CheckpointMove,
  ): Promise<void> {
    try {
      await sink.commit(model, writes, move);
    } catch (error) {
      if (!isDataError(error)) throw error;
      if (events.length > 1) {
        batch = Math.max(1, events.length >> 1);
        throw error;
      }
      throw new BrokenProjection(model, events[0]!, error);
    }
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
    const missing = [...keysOf(model, events)].filter((key) => !documents.has(key));
    if (missing.length === 0) return;
    for (const [key, current] of await loadCurrent(database, model.table, missing))
      documents.set(key, current);
  }

  function project(events: readonly AuthorityEvent[]) {
    const writes: DocumentWrite[] = [];
    let upTo = position!;
    for (const event of events) {
      try {
        const write = applyEvent(model, event, documents);
        if (write) writes.push(write);
      } catch (error) {
        if (error instanceof BrokenProjection) return { writes, upTo, failure: error };
        throw error;
      }
      upTo = event.position;
    }
    return { writes, upTo, failure: undefined };
  }

  function forget(): void {
    documents.clear();
    position = undefined;
    broken = undefined;
  }

  function forgetOldest(): void {
    for (const key of documents.keys()) {
      if (documents.size <= CACHED_DOCUMENTS) break;
      documents.delete(key);
    }
  }

  const loop = runLoop(context, `projector ${model.topic}`, {
    wake,
    get idleMs() {
      return broken ? options.retryMs : options.pollMs;
    },
    step,
    // The cache may differ from what was committed: read it again.
    onError(error) {
      const stopped = error instanceof BrokenProjection ? error : undefined;
      forget();
      broken = stopped;
    },
  });

  return {
    state: () => ({ topic: model.topic, position, broken }),
    wake: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

async function readCheckpoint(database: Database, topic: string) {
  const [row] = await database.query<{ position: bigint; generation: bigint }>({
    name: "sync_checkpoint",
    text: "SELECT position, generation FROM runtime.sync_checkpoints WHERE topic = $1",
    values: [topic],
  });
  if (!row) throw new Error(`The topic ${topic} has no checkpoint.`);
  return row;
}
