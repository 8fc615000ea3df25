import { KhalaError } from "@khala/contracts";
import { commitEach } from "../../database/commit_each.ts";
import type { Database, Row, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { GroupCommit } from "../../kit/group_commit.ts";
import type { SyncMetrics } from "../metrics.ts";
import { isKeyOf, MAX_KEY_BYTES, type Model } from "../model.ts";
import { type CheckpointMove, isFastPath, writeFastPath } from "./write_fast_path.ts";
import {
  type DocumentWrite,
  lockProjection,
  lockTopic,
  type WrittenRow,
  waves,
  writeDocuments,
} from "./write_statement.ts";

/** The result of a write: its watermark, or null when the stored version is not older. */
export interface Written {
  readonly watermark: bigint | null;
}

/** Writes documents: read model, watermark and journal in one transaction. */
export interface Sink {
  /** Writes one document. Concurrent writers share a transaction; each is answered after its commit. */
  write(model: Model, write: DocumentWrite): Promise<Written>;
  /** Writes a batch, moves a projection's checkpoint, and runs the statements beside them: all or nothing. */
  commit(
    model: Model,
    writes: readonly DocumentWrite[],
    checkpoint?: CheckpointMove,
    beside?: readonly Statement[],
  ): Promise<Written[]>;
  /** Resolves when everything written so far is answered. */
  drain(): Promise<void>;
}

export interface SinkOptions {
  readonly metrics: SyncMetrics;
  /** Store payloads in the journal too, or only in the read model (pointer mode). */
  readonly inline: boolean;
  /**
   * A statement that notifies the other servers of the topic's updates within a commit of this many updates, when there is one
   * to be had; `tookMs` is how long the last commit took.
   */
  readonly wakeup?: (topic: string, updates: number, tookMs: number) => Statement | undefined;
  /** Called after each commit that may have moved a topic by this many updates; `notified` when the commit sent the wakeup itself. */
  readonly onCommit: (topic: string, updates: number, notified: boolean) => void;
}

/** From this size on, writes are sent as a second commit while the first is running. PostgreSQL executes it afterwards. */
const SECOND_BYTES = 16 << 10;

/** Opens the sink. */
export function openSink(database: Database, context: Context, options: SinkOptions): Sink {
  const queues = new Map<string, GroupCommit<DocumentWrite, Written>>();
  let tookMs = 0;

  /** Transactions of one topic are pipelined: a commit is prepared and sent while the one before is running. */
  async function transact(
    { topic }: Model,
    statements: readonly Statement[],
    updates: number,
  ): Promise<{ readonly answers: Row[][]; readonly notified: boolean }> {
    const wakeup = updates > 0 ? options.wakeup?.(topic, updates, tookMs) : undefined;
    const began = context.clock.now();
    const answers = await database.transaction(wakeup ? [...statements, wakeup] : statements, topic);
    tookMs = context.clock.now() - began;
    return { answers, notified: wakeup !== undefined };
  }

  async function commit(
    model: Model,
    writes: readonly DocumentWrite[],
    {
      checkpoint,
      beside = [],
      repeated = false,
    }: { checkpoint?: CheckpointMove | undefined; beside?: readonly Statement[]; repeated?: boolean },
  ): Promise<Written[]> {
    const parts = waves(writes);
    // After a retry the versions may be stored already, which the fast path refuses.
    const tryFastPath = !repeated && beside.length === 0 && parts.length === 1 && isFastPath(writes);
    try {
      const fast = tryFastPath ? await commitFastPath(model, writes, checkpoint) : undefined;
      return fast ?? (await commitSlowPath(model, writes, parts, checkpoint, beside));
    } catch (error) {
      options.metrics.writeFailures.add(1, { topic: model.topic });
      throw error;
    }
  }

  /** The fast path; undefined when a write needs the slow path, and then nothing is written. */
  async function commitFastPath(
    model: Model,
    writes: readonly DocumentWrite[],
    checkpoint?: CheckpointMove,
  ): Promise<Written[] | undefined> {
    const lock = checkpoint ? lockProjection(model.topic) : lockTopic(model.topic);
    const statements = [lock, writeFastPath(model, writes, options.inline, checkpoint)];
    const { answers, notified } = await transact(model, statements, writes.length);
    const [row] = answers[1] as unknown[] as { before: bigint }[];
    if (!row) return undefined;
    committed(model, writes.length, notified);
    return writes.map((_, i) => ({ watermark: row.before + BigInt(i + 1) }));
  }

  async function commitSlowPath(
    model: Model,
    writes: readonly DocumentWrite[],
    parts: readonly (readonly DocumentWrite[])[],
    checkpoint: CheckpointMove | undefined,
    beside: readonly Statement[],
  ): Promise<Written[]> {
    const statements: Statement[] = [];
    if (checkpoint) {
      const { from, to, generation } = checkpoint;
      const text = "SELECT runtime.advance_checkpoint($1, $2, $3, $4)";
      statements.push({ name: "sync_advance", text, values: [model.topic, from, to, generation] });
    }
    if (parts.length > 0) statements.push(lockTopic(model.topic));
    const first = statements.length;
    for (const part of parts) statements.push(writeDocuments(model, part, options.inline));
    statements.push(...beside);
    const { answers, notified } = await transact(model, statements, writes.length);
    const watermarks = new Map<DocumentWrite, bigint | null>();
    parts.forEach((part, p) => {
      for (const row of answers[first + p] as unknown[] as WrittenRow[])
        watermarks.set(part[row.ord - 1]!, row.watermark);
    });
    if (watermarks.size > 0) committed(model, watermarks.size, notified);
    return writes.map((write) => ({ watermark: watermarks.get(write) ?? null }));
  }

  function committed({ topic }: Model, count: number, notified: boolean): void {
    options.metrics.writes.add(count, { topic });
    options.onCommit(topic, count, notified);
  }

  function queueOf(model: Model): GroupCommit<DocumentWrite, Written> {
    let queue = queues.get(model.topic);
    if (!queue) {
      queue = new GroupCommit({
        commit: (writes) =>
          commitEach(context, writes, {
            async commit(some, attempt) {
              return (await commit(model, some, { repeated: attempt > 0 })).map((ok) => ({ ok }));
            },
            // Versions only rise, so a commit whose answer was lost may be repeated.
            isIdempotent: true,
          }),
        sizeOf: (write) => (write.payload?.length ?? 0) + 200,
        maxItems: 512,
        maxBytes: 8 << 20,
        maxWaitingBytes: 64 << 20,
        secondFromBytes: SECOND_BYTES,
      });
      queues.set(model.topic, queue);
    }
    return queue;
  }

  return {
    write(model, write) {
      if (isKeyOf(model, write.docKey)) return queueOf(model).write(write);
      const message = `A doc_key of ${model.topic} starts with "${model.prefix}:" and is Unicode text without NUL of at most ${MAX_KEY_BYTES} bytes.`;
      return Promise.reject(new KhalaError("invalid_request", message, { field: "doc_key" }));
    },
    commit: (model, writes, checkpoint, beside) =>
      commit(model, writes, { checkpoint, ...(beside && { beside }) }),
    async drain() {
      await Promise.all([...queues.values()].map((queue) => queue.drain()));
    },
  };
}
