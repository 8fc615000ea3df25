import type { Database, Row, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { SyncMetrics } from "../metrics.ts";
import type { Model } from "../model.ts";
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
  /** Writes a batch, moves a projection's checkpoint, and runs the statements beside them: all or nothing. */
  commit(
    model: Model,
    writes: readonly DocumentWrite[],
    checkpoint: CheckpointMove,
    beside?: readonly Statement[],
  ): Promise<Written[]>;
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

/** Opens the sink. */
export function openSink(database: Database, context: Context, options: SinkOptions): Sink {
  let tookMs = 0;

  async function transact(
    { topic }: Model,
    statements: readonly Statement[],
    updates: number,
  ): Promise<{ readonly answers: Row[][]; readonly notified: boolean }> {
    const wakeup = updates > 0 ? options.wakeup?.(topic, updates, tookMs) : undefined;
    const began = context.clock.now();
    const answers = await database.transaction(wakeup ? [...statements, wakeup] : statements);
    tookMs = context.clock.now() - began;
    return { answers, notified: wakeup !== undefined };
  }

  /** The fast path; undefined when a write needs the slow path, and then nothing is written. */
  async function commitFastPath(
    model: Model,
    writes: readonly DocumentWrite[],
    checkpoint: CheckpointMove,
  ): Promise<Written[] | undefined> {
    const statements = [
      lockProjection(model.topic),
      writeFastPath(model, writes, options.inline, checkpoint),
    ];
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
    { from, to, generation }: CheckpointMove,
    beside: readonly Statement[],
  ): Promise<Written[]> {
    const text = "SELECT runtime.advance_checkpoint($1, $2, $3, $4)";
    const statements: Statement[] = [
      { name: "sync_advance", text, values: [model.topic, from, to, generation] },
    ];
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

  return {
    async commit(model, writes, checkpoint, beside = []) {
      const parts = waves(writes);
      const tryFastPath = beside.length === 0 && parts.length === 1 && isFastPath(writes);
      try {
        const fast = tryFastPath ? await commitFastPath(model, writes, checkpoint) : undefined;
        return fast ?? (await commitSlowPath(model, writes, parts, checkpoint, beside));
      } catch (error) {
        options.metrics.writeFailures.add(1, { topic: model.topic });
        throw error;
      }
    },
  };
}
