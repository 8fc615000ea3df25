import type { Context, Service } from "@khala/server/blackboard";
import type { KafkaClient } from "./client.ts";
import type { KafkaProducer, NativeProducer, OffsetOwner, TopicOffsets } from "./client_types.ts";
import {
  coordinated,
  explained,
  givenUp,
  isFenced,
  isStuck,
  isTimeout,
  isUndelivered,
  repeated,
  stuck,
} from "./kafka_errors.ts";
import { handOver, nativeOf, placed, WITHOUT_REPORTS } from "./native_producer.ts";
import { waiting, waitingWithoutEnd } from "./native_waits.ts";
import type { Outgoing } from "./records.ts";
import { Rivals } from "./rivals.ts";
import type { ResolvedSettings } from "./settings.ts";
import { Slots } from "./slots.ts";
import { largestTask } from "./topics.ts";

/** What happens as one: all of it becomes visible, or nothing. */
export interface Transaction {
  /** The transactional id, for spans; undefined where transactions are off. */
  readonly id: string | undefined;
  /** Takes them. Need not be awaited: the commit waits until the brokers have them, and fails if they do not take one. */
  send(records: readonly Outgoing[]): Promise<void>;
  /**
   * The next offsets of the consumer's group. Call it in the consumer's batch handler after `isStale()`: the
   * consumer's generation of this moment is what fences a partition that was lost.
   */
  sendOffsets(consumer: OffsetOwner, topics: readonly TopicOffsets[]): Promise<void>;
}

/** The producers of a process. */
export interface Producers extends Service {
  /** Whether `transaction` is one, or writes at least once and commits offsets last. */
  readonly transactional: boolean;
  /**
   * Runs `work` on a free producer, and commits; waits for one while all are busy. What it or the commit throws aborts
   * everything, and is thrown as a KhalaError: `stale_producer` if another has taken over, else try again.
   */
  transaction<T>(work: (transaction: Transaction) => Promise<T>): Promise<T>;
  /** Resolves when there is a producer; rejects as `transaction` would. */
  ready(): Promise<void>;
}

const TRANSACTION_TIMEOUT_MS = 15_000;
/**
 * After so long without traffic connections are closed and made anew. That is what makes the client ask again who
 * coordinates a group when the coordinator is lost while offsets are sent: without it that call never ends.
 */
const IDLE_MS = 5_000;
/** After so long it has not helped: a client that was told that there are no brokers waits for ever. */
const STUCK_MS = 30_000;

/** Opens the producers of a process; they connect when they are needed first. */
export function openProducers(
  context: Pick<Context, "clock" | "log" | "random">,
  client: KafkaClient,
  settings: ResolvedSettings,
): Producers {
  const properties = {
    "linger.ms": 1,
    "connections.max.idle.ms": IDLE_MS,
    ...settings.producerProperties,
    "message.max.bytes": largestTask(settings) + 131_072,
  };
  const { partitions } = settings;
  if (!settings.transactions) return plainProducer(context, client, properties, partitions);
  const rivals: Rivals[] = [];
  /** Those that meet under this process's id of now; under another one it has met nobody. */
  const rivalOf = async (slot: number): Promise<Rivals> => {
    const { transactionalId } = settings;
    const own = typeof transactionalId === "string" ? transactionalId : await transactionalId();
    const id = `${own}-${slot}`;
    const known = rivals[slot];
    const rival = known?.id === id ? known : new Rivals(context, id);
    rivals[slot] = rival;
    return rival;
  };
  const slots = new Slots(settings.producers, async (slot) => {
    const rival = await rivalOf(slot);
    rival.refuse();
    // Each time a new one: a producer that could not begin is of no more use.
    const producer = await coordinated(context, TRANSACTION_TIMEOUT_MS, () =>
      connected(
        client.producer({
          transactionalId: rival.id,
          transactionTimeoutMs: TRANSACTION_TIMEOUT_MS,
          properties: { ...properties, ...WITHOUT_REPORTS },
        }),
      ),
    );
    return { rival, producer, native: nativeOf(producer) };
  });
  return {
    transactional: true,
    async transaction(work) {
      const lease = await slots.take().catch((error: unknown) => {
        throw explained(error);
      });
      const { rival, producer, native } = lease.value;
      const beganAt = context.clock.now();
      let healthy = false;
      /** Offsets that are being sent: the producer must not be called meanwhile. */
      let sending: Promise<unknown> = Promise.resolve();
      const sendOffsets: Transaction["sendOffsets"] = (consumer, topics) =>
        repeated(context, TRANSACTION_TIMEOUT_MS, () =>
          atMost(context, STUCK_MS, () => {
            const call = consumer.lend
              ? consumer.lend((member) => producer.sendOffsets({ consumer: member, topics }))
              : producer.sendOffsets({ consumer, topics });
            sending = call;
            return call;
          }),
        );
      try {
        const result = await inTransaction(
          context,
          { id: rival.id, sendOffsets },
          { producer, native, partitions },
          work,
        );
        healthy = true;
        return result;
      } catch (error) {
        // The call goes on, and no other can be made.
        if (isStuck(error)) throw explained(error);
        const reason = isFenced(error) ? error : await abort(context, producer);
        // The client does not always find a coordinator again that stood still: each call would end like this one.
        healthy = reason === undefined && !isTimeout(error);
        if (!isFenced(reason)) throw explained(error);
        // The brokers end a transaction that takes too long, as they do when one of them is lost: nobody else was there.
        if (context.clock.now() - beganAt >= TRANSACTION_TIMEOUT_MS / 2) throw givenUp(reason);
        rival.met();
        throw explained(reason);
      } finally {
        lease.giveBack(healthy);
        if (!healthy) discard(context, producer, sending);
      }
    },
    async ready() {
      const lease = await slots.take();
      lease.giveBack(true);
    },
    async stop() {
      const producers = await slots.drain();
      await Promise.all(producers.map(({ producer }) => disconnected(producer)));
    },
  };
}

/** What a transaction writes with, and how many partitions its topics were made with. */
interface Writing {
  readonly producer: KafkaProducer;
  readonly native: NativeProducer;
  readonly partitions: number;
}

async function inTransaction<T>(
  context: Pick<Context, "clock">,
  { id, sendOffsets }: Pick<Transaction, "id" | "sendOffsets">,
  { producer, native, partitions }: Writing,
  work: (transaction: Transaction) => Promise<T>,
): Promise<T> {
  await producer.transaction();
  const sends: Promise<unknown>[] = [];
  const result = await work({
    id,
    send(records) {
      const sending = (async () => handOver(native, records, partitions))();
      sending.catch(() => {});
      sends.push(sending);
      return sending;
    },
    sendOffsets,
  });
  // Before the commit: it knows nothing of a record that the client itself refused.
  await Promise.all(sends);
  // It waits for the records. Its own limit is 5 s, and it goes on behind that: the second call asks for the same one.
  await repeated(context, TRANSACTION_TIMEOUT_MS, () => waiting(() => producer.commit()));
  return result;
}

/** A call that may wait without end is given up after so long. */
async function atMost(
  { clock }: Pick<Context, "clock">,
  ms: number,
  call: () => Promise<void>,
): Promise<void> {
  const late = Promise.withResolvers<never>();
  late.promise.catch(() => {});
  const cancel = clock.after(ms, () => late.reject(stuck("The coordinator of a group")));
  try {
    await waitingWithoutEnd(call, late.promise);
  } finally {
    cancel();
  }
}

/** Aborts what is open; what it returns is why the producer is of no more use. */
async function abort(context: Pick<Context, "clock" | "log">, producer: KafkaProducer): Promise<unknown> {
  try {
    // One try: a producer that takes its place ends the transaction as well.
    if (producer.isActive()) await waiting(() => producer.abort());
    return undefined;
  } catch (error) {
    context.log.warn(
      { err: (error as Error).message },
      "a transaction was not aborted: its producer is replaced",
    );
    return error;
  }
}

/** Disconnects it once the call ends that is under way: until then that would wait as well, and hold a thread more. */
function discard({ log }: Pick<Context, "log">, producer: KafkaProducer, call: Promise<unknown>): void {
  call
    .catch(() => {})
    .then(() => disconnected(producer))
    .catch((error: Error) => log.warn({ err: error.message }, "a producer did not disconnect in order"));
}

async function send(
  producer: KafkaProducer,
  records: readonly Outgoing[],
  partitions: number,
): Promise<void> {
  const byTopic = Map.groupBy(records, ({ topic }) => topic);
  await producer.sendBatch({
    topicMessages: [...byTopic].map(([topic, outgoing]) => ({
      topic,
      // The client writes into what it is given.
      // And it ends a string at its first NUL, so that keys are bytes.
      messages: outgoing.map(({ record }) => {
        const key = typeof record.key === "string" ? Buffer.from(record.key) : (record.key ?? null);
        return { ...record, key, partition: record.partition ?? placed(key, partitions) };
      }),
    })),
  });
}

/** Connects, or leaves nothing open. */
async function connected(producer: KafkaProducer): Promise<KafkaProducer> {
  try {
    await waiting(() => producer.connect());
    return producer;
  } catch (error) {
    await disconnected(producer);
    throw error;
  }
}

function disconnected(producer: KafkaProducer): Promise<void> {
  return waiting(() => producer.disconnect());
}

/** At least once: everything is acknowledged before the offsets are committed. */
function plainProducer(
  context: Pick<Context, "log">,
  client: KafkaClient,
  properties: Readonly<Record<string, string | number | boolean>>,
  partitions: number,
): Producers {
  const slots = new Slots(1, () =>
    connected(
      client.producer({ properties: { "message.timeout.ms": TRANSACTION_TIMEOUT_MS, ...properties } }),
    ),
  );
  const users = new Map<Promise<unknown>, KafkaProducer>();
  /** Runs `use` with the producer of now, which stays until it has ended. */
  const shared = async <T>(use: (producer: KafkaProducer) => Promise<T>): Promise<T> => {
    const lease = await slots.take().catch((error: unknown) => {
      throw explained(error);
    });
    const running = use(lease.value);
    users.set(running, lease.value);
    lease.giveBack(true);
    try {
      return await running;
    } finally {
      users.delete(running);
    }
  };
  /** Others use another from now on, unless they do already. */
  const replace = async (producer: KafkaProducer) => {
    const lease = await slots.take();
    const isSame = lease.value === producer;
    lease.giveBack(!isSame);
    // Nobody is told of records that a producer still has when it disconnects: whoever waits for them would wait for ever.
    const others = [...users].flatMap(([running, used]) => (used === producer ? [running] : []));
    if (isSame) discard(context, producer, Promise.allSettled(others));
  };
  const run = async <T>(
    producer: KafkaProducer,
    work: (transaction: Transaction) => Promise<T>,
  ): Promise<T> => {
    try {
      const sends: Promise<unknown>[] = [];
      const offsets: (() => Promise<void>)[] = [];
      const result = await work({
        id: undefined,
        send(records) {
          const sending = send(producer, records, partitions);
          sending.catch(() => {});
          sends.push(sending);
          return sending;
        },
        async sendOffsets(consumer, topics) {
          offsets.push(() => consumer.commitOffsets(flat(topics)));
        },
      });
      await Promise.all(sends);
      for (const commit of offsets) await commit();
      return result;
    } catch (error) {
      // The client does not always find its brokers again: each record would end like this one.
      if (isUndelivered(error)) await replace(producer);
      throw explained(error);
    }
  };
  return {
    transactional: false,
    transaction: (work) => shared((producer) => run(producer, work)),
    ready: () => shared(async () => {}),
    async stop() {
      const producers = await slots.drain();
      await Promise.allSettled(users.keys());
      await Promise.all(producers.map(disconnected));
    },
  };
}

function flat(topics: readonly TopicOffsets[]) {
  return topics.flatMap(({ topic, partitions }) =>
    partitions.map(({ partition, offset }) => ({ topic, partition, offset })),
  );
}
