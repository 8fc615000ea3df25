import { type BoardObserver, type Context, type RecordPosition, ROUTER } from "@khala/server/blackboard";
import { type Batch, joinGroup, type Membership } from "../client/group.ts";
import type { Producers } from "../producers/producers.ts";
import { decodeRetry } from "../topics/decoding.ts";
import type { LogRecord } from "../topics/log_reader.ts";
import { failureOf, originOf } from "../topics/record_headers.ts";
import {
  type Outgoing,
  refuseLarge,
  retryRecord,
  returnedRecord,
  unreadableRecord,
} from "../topics/records.ts";
import type { TopicNames } from "../topics/topics.ts";
import type { Session } from "./supervise.ts";

/** The allowed lateness of a retry, besides a tenth of its delay. */
const LATE_MS = 1_000;

/**
 * The delay of the topic that a retry waits in next: the longest that does not make it late, else the shortest. What is
 * left after it is waited for in the next one.
 */
export function tierFor(delaysMs: readonly number[], leftMs: number): number | undefined {
  const latest = leftMs + Math.max(LATE_MS, leftMs / 10);
  const sorted = [...delaysMs].sort((one, other) => one - other);
  return sorted.findLast((tier) => tier <= latest) ?? sorted[0];
}

export interface RetryOptions {
  readonly membership: Membership;
  readonly producers: Producers;
  readonly names: TopicNames;
  readonly observer: Pick<BoardObserver, "unreadable">;
  /** The size limit of a task, as a record. */
  readonly maxTaskBytes: number;
  /** The topics of this process's agents. */
  readonly topics: readonly string[];
  /** All existing topics. */
  listTopics(): Promise<readonly string[]>;
  readonly delayMs: number;
  readonly delaysMs: readonly number[];
  onFailure(error: Error): void;
}

/** A record that waits for its due time. */
interface Waiting {
  readonly record: LogRecord;
  readonly readyAt: number;
}

/** Records of a partition that wait for their due time. */
class Tier {
  readonly waiting: Waiting[] = [];
  moving: Promise<void> | undefined;
  cancel = () => {};
  paused = false;
  lost = false;
}

/** The limit per partition in memory; more stays in the log. */
const MAX_WAITING = 500;
const BATCH = 100;

/**
 * Brings the tasks of one retry topic back before their agents when they are due, or into the topic for what is left.
 * No record of the topic waits longer than its delay, so that one is held up by those before it for that long at most. The offset of one that waits is not committed: another
 * member that gets its partition finds the same record with the same due time.
 */
export async function startRetryTier(context: Context, options: RetryOptions): Promise<Session> {
  const { membership, producers, names, delayMs } = options;
  const { clock } = context;
  const topic = names.retry(delayMs);
  const tiers = new Map<number, Tier>();
  /** The known target topics. Other servers may have agents that this one does not know. */
  let topics: ReadonlySet<string> = new Set(options.topics);

  function schedule(partition: number, tier: Tier): void {
    const [head] = tier.waiting;
    if (tier.lost || tier.moving || !head) return;
    tier.cancel();
    const wait = head.readyAt - clock.now();
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
    const waits = tier.waiting.findIndex(({ readyAt }) => readyAt > clock.now());
    const due = waits < 0 ? [...tier.waiting] : tier.waiting.slice(0, waits);
    const offset = String(due.at(-1)!.record.at + 1);
    const moved = await forward(due.map(({ record }) => record));
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

  /** The target of each record. A record without a target becomes a dead letter, as it would block those behind it. */
  async function forward(records: readonly LogRecord[]): Promise<Outgoing[]> {
    const goals = records.map((record) => forwarded(context, options, record));
    if (goals.some(({ topic: to }) => !topics.has(to))) topics = new Set(await options.listTopics());
    return goals.map((goal, i) => {
      if (topics.has(goal.topic)) return goal;
      return unreadable(context, names, records[i]!, `There is no topic ${goal.topic}.`);
    });
  }

  function onBatch({ partition, records }: Batch): void {
    const tier = tiers.get(partition);
    if (!tier || tier.lost) return;
    const last = tier.waiting.at(-1)?.record.at ?? -1;
    const fresh = records.filter(({ at }) => at > last);
    const now = clock.now();
    tier.waiting.push(...fresh.map((record) => ({ record, readyAt: readyAt(record, delayMs, now) })));
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

/**
 * When it is due, but no later than the topic's delay: the rest of a longer wait is in another topic. Neither does a record
 * that another program dated to the future hold up those behind it.
 */
function readyAt(record: LogRecord, delayMs: number, now: number): number {
  const decoded = decodeRetry(record);
  const fixed = Math.min(Number(record.timestamp), now) + delayMs;
  return decoded.ok ? Math.min(decoded.value.dueAt, fixed) : 0;
}

function forwarded(context: Context, options: RetryOptions, record: LogRecord): Outgoing {
  const { names, delaysMs, maxTaskBytes } = options;
  try {
    const decoded = decodeRetry(record);
    if (!decoded.ok) throw new TypeError(decoded.error);
    const { task, dueAt } = decoded.value;
    const origin = originOf(record, positionOf(record));
    const left = dueAt - context.clock.now();
    const tier = left > 0 ? tierFor(delaysMs, left) : undefined;
    const goal =
      tier === undefined
        ? { topic: names.tasks(task.agent), record: returnedRecord(task, origin) }
        : { topic: names.retry(tier), record: retryRecord(task, failureOf(record), origin, dueAt) };
    refuseLarge([goal], maxTaskBytes);
    return goal;
  } catch (error) {
    return unreadable(context, names, record, (error as Error).message);
  }
}

function unreadable(context: Context, names: TopicNames, record: LogRecord, reason: string): Outgoing {
  const position = positionOf(record);
  const letter = unreadableRecord(context, reason, record, position, originOf(record, position));
  return { topic: names.deadLetters(ROUTER), record: letter };
}

function positionOf({ topic, partition, offset }: LogRecord): RecordPosition {
  return { topic, partition, offset };
}
