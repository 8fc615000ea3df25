import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import type { Authority } from "../runtime/authority.ts";
import type { AuthorityEvent } from "../runtime/stream.ts";
import type { Model } from "./model.ts";
import { applyEvent, BrokenProjection, keyFor } from "./projection.ts";
import { type CurrentDocument, loadCurrent } from "./read_models.ts";
import type { Sink } from "./sink.ts";
import type { DocumentWrite } from "./write_statement.ts";

/** Where a projection stands. */
export interface ProjectorState {
  readonly topic: string;
  /** The newest event that is projected; undefined while another process does it. */
  readonly position: bigint | undefined;
  /** Set while the projection is stopped at an event that it cannot take. */
  readonly broken: BrokenProjection | undefined;
}

/** Follows the authority log for one model. */
export interface Projector extends Service {
  state(): ProjectorState;
  /** Hint: there may be new events. */
  wake(): void;
}

export interface ProjectorOptions {
  readonly database: Database;
  readonly authority: Authority;
  readonly sink: Sink;
  readonly pollMs: number;
  /** How often a broken projection is tried again. */
  readonly retryMs: number;
  /** Whether it is this process's turn. It saves doing work twice; the checkpoint is what keeps it right. */
  readonly active: () => boolean;
}

const BATCH = 1_000;
const CACHED_DOCUMENTS = 20_000;

/**
 * Starts the projector of a model. Any number of processes may run one: the checkpoint moves in the sink's
 * transaction, from the position that was read, so of two that did the same work only one commits.
 */
export function startProjector(model: Model, context: Context, options: ProjectorOptions): Projector {
  const { database, authority, sink } = options;
  const documents = new Map<string, CurrentDocument>();
  const wake = new Wake();
  let position: bigint | undefined;
  let broken: BrokenProjection | undefined;

  async function step(): Promise<boolean> {
    if (!options.active()) {
      forget();
      return false;
    }
    position ??= await readCheckpoint(database, model.topic);
    const events = await authority.read(position, BATCH);
    if (events.length === 0) {
      broken = undefined;
      return false;
    }
    await load(events);
    const { writes, upTo, failure } = project(events);
    if (upTo > position) {
      await sink.commit(model, writes, { from: position, to: upTo });
      position = upTo;
    }
    if (failure && failure.event.position !== broken?.event.position) {
      context.log.error(
        { topic: model.topic, position: failure.event.position.toString(), err: failure.message },
        "projection stopped",
      );
    }
    broken = failure;
    forgetOldest();
    return !failure && events.length === BATCH;
  }

  async function load(events: readonly AuthorityEvent[]): Promise<void> {
    const missing = new Set<string>();
    for (const event of events) {
      const key = safeKey(event);
      if (key !== null && !documents.has(key)) missing.add(key);
    }
    if (missing.size === 0) return;
    for (const [key, current] of await loadCurrent(database, model.table, [...missing]))
      documents.set(key, current);
  }

  /** A model whose `id` throws is broken at that event; `project` reports it. */
  function safeKey(event: AuthorityEvent): string | null {
    try {
      return keyFor(model, event);
    } catch {
      return null;
    }
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
    // What is remembered may not be what was committed: start again from the database.
    onError: forget,
  });

  return {
    state: () => ({ topic: model.topic, position, broken }),
    wake: () => wake.wake(),
    stop: () => loop.stop(),
  };
}

async function readCheckpoint(database: Database, topic: string): Promise<bigint> {
  const [row] = await database.query<{ position: bigint }>({
    text: "SELECT position FROM runtime.sync_checkpoints WHERE topic = $1",
    values: [topic],
  });
  if (!row) throw new Error(`The topic ${topic} has no checkpoint.`);
  return row.position;
}
