import { type BoardObserver, type Context, ROUTER } from "@khala/server/blackboard";
import { type Batch, joinGroup, type Membership } from "../client/group.ts";
import type { Producers } from "../producers/producers.ts";
import { decodeRetry } from "../topics/decoding.ts";
import type { LogRecord } from "../topics/log_reader.ts";
import { failureOf, originOf } from "../topics/record_headers.ts";
import { type Outgoing, retryRecord, returnedRecord, unreadableRecord } from "../topics/records.ts";
import type { TopicNames } from "../topics/topics.ts";
import type { Session } from "./supervise.ts";

/** The delay of the topic that a retry waits in: the shortest that is long enough, else the longest. */
export function tierFor(delaysMs: readonly number[], delayMs: number): number | undefined {
  const sorted = [...delaysMs].sort((one, other) => one - other);
  return sorted.find((tier) => tier >= delayMs) ?? sorted.at(-1);
}

export interface RetryOptions {
  readonly membership: Membership;
  readonly producers: Producers;
  readonly names: TopicNames;
  readonly observer: Pick<BoardObserver, "unreadable">;
  readonly delayMs: number;
  readonly delaysMs: readonly number[];
  onFailure(error: Error): void;
}

/** Records of a partition that wait for their time. */
class Tier {
  readonly waiting: LogRecord[] = [];
  moving: Promise<void> | undefined;
  cancel = () => {};
  paused = false;
  lost = false;
}

/** Of one partition in memory; more stays in the log. */
const MAX_WAITING = 500;
const BATCH = 100;

/**
 * Brings the tasks of one retry topic back before their agents when they are due. All records of the topic wait
 * equally long, so that none is held up by the one before it. The offset of one that waits is not committed: another
 * member that gets its partition finds the same record with the same due time.
 */
export async function startRetryTier(context: Context, options: RetryOptions): Promise<Session> {
  const { membership, producers, names, delayMs } = options;
  const { clock } = context;
  const topic = names.retry(delayMs);
  const tiers = new Map<number, Tier>();

  function schedule(partition: number, tier: Tier): void {
    const [head] = tier.waiting;
    if (tier.lost || tier.moving || !head) return;
    tier.cancel();
    const wait = readyAt(head, delayMs) - clock.now();
    if (wait > 0) {
      tier.cancel = clock.after(wait, () => schedule(partition, tier));
      return;
    }
    tier.moving = move(partition, tier)
      .catch(options.onFailure)
      .finally(() => {
        tier.moving = undefined;
        schedule(partition, tier);
      });
  }

  async function move(partition: number, tier: Tier): Promise<void> {
    const waits = tier.waiting.findIndex((record) => readyAt(record, delayMs) > clock.now());
    const due = waits < 0 ? [...tier.waiting] : tier.waiting.slice(0, waits);
    const offset = String(due.at(-1)!.at + 1);
    const moved = due.map((record) => forwarded(context, options, record));
    await producers.transaction(async (transaction) => {
      void transaction.send(moved);
      await transaction.sendOffsets(group.owner, [{ topic, partitions: [{ partition, offset }] }]);
    });
    tier.waiting.splice(0, due.length);
    for (const { topic: to } of moved)
      if (to === names.deadLetters(ROUTER)) options.observer.unreadable?.(ROUTER);
    if (tier.paused && tier.waiting.length < MAX_WAITING / 2) {
      tier.paused = false;
      group.resume({ topic, partition });
    }
  }

  function onBatch({ partition, records }: Batch): void {
    const tier = tiers.get(partition);
    if (!tier || tier.lost) return;
    const last = tier.waiting.at(-1)?.at ?? -1;
    tier.waiting.push(...records.filter(({ at }) => at > last));
    if (tier.waiting.length >= MAX_WAITING && !tier.paused) {
      tier.paused = true;
      group.pause({ topic, partition });
    }
    schedule(partition, tier);
  }

  async function release(partition: number): Promise<void> {
    const tier = tiers.get(partition);
    if (!tier) return;
    tier.lost = true;
    tier.cancel();
    await tier.moving;
    tiers.delete(partition);
  }

  await producers.ready();
  const group = await joinGroup(context, membership, {
    groupId: names.retryGroup(delayMs),
    topics: [topic],
    batch: BATCH,
    onAssign(partitions) {
      for (const { partition } of partitions) tiers.set(partition, new Tier());
    },
    async onRevoke(partitions) {
      await Promise.all(partitions.map(({ partition }) => release(partition)));
    },
    onBatches: (batches) => batches.forEach(onBatch),
    onFailure: options.onFailure,
  });
  const stop = async () => {
    await Promise.all([...tiers.keys()].map(release));
    await group.leave();
  };
  return { stop, discard: stop };
}

/** One delay for all: a due time that is further away only counts when the task comes back. */
function readyAt(record: LogRecord, delayMs: number): number {
  const decoded = decodeRetry(record);
  const fixed = Number(record.timestamp) + delayMs;
  return decoded.ok ? Math.min(decoded.value.dueAt, fixed) : 0;
}

function forwarded(context: Context, { names, delaysMs }: RetryOptions, record: LogRecord): Outgoing {
  const position = { topic: record.topic, partition: record.partition, offset: record.offset };
  const origin = originOf(record, position);
  const decoded = decodeRetry(record);
  if (!decoded.ok) {
    const letter = unreadableRecord(context, decoded.error, record, position, origin);
    return { topic: names.deadLetters(ROUTER), record: letter };
  }
  const { task, dueAt } = decoded.value;
  const left = dueAt - context.clock.now();
  const tier = left > 0 ? tierFor(delaysMs, left) : undefined;
  if (tier === undefined) return { topic: names.tasks(task.agent), record: returnedRecord(task, origin) };
  return { topic: names.retry(tier), record: retryRecord(task, failureOf(record), origin, dueAt) };
}
