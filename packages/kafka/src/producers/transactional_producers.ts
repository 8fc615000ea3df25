import type { Context } from "@khala/server/blackboard";
import type { KafkaClient, Properties } from "../client/client.ts";
import type { KafkaProducer, NativeProducer } from "../client/client_types.ts";
import {
  coordinated,
  explained,
  givenUp,
  isFenced,
  isStuck,
  isTimeout,
  repeated,
  stuck,
} from "../client/kafka_errors.ts";
import { handOver, nativeOf, WITHOUT_REPORTS } from "../client/native_producer.ts";
import { waiting, waitingWithoutEnd } from "../client/native_waits.ts";
import type { ResolvedSettings } from "../settings.ts";
import { connected, discard, disconnected, PRODUCER_TIMEOUT_MS } from "./producer_life.ts";
import type { Producers, Transaction } from "./producers.ts";
import { Rivals } from "./rivals.ts";
import { Slots } from "./slots.ts";

/** So long offsets are waited for. A client that was told that there are no brokers would wait for ever. */
const STUCK_MS = 30_000;

/** Producers whose every use is a transaction, each under an id of this process. */
export function transactionalProducers(
  context: Pick<Context, "clock" | "log" | "random">,
  client: KafkaClient,
  settings: ResolvedSettings,
  properties: Properties,
): Producers {
  const { partitions } = settings;
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
    const producer = await coordinated(context, PRODUCER_TIMEOUT_MS, () =>
      connected(
        client.producer({
          transactionalId: rival.id,
          transactionTimeoutMs: PRODUCER_TIMEOUT_MS,
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
        repeated(context, PRODUCER_TIMEOUT_MS, () =>
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
        if (context.clock.now() - beganAt >= PRODUCER_TIMEOUT_MS / 2) throw givenUp(reason);
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
  await repeated(context, PRODUCER_TIMEOUT_MS, () => waiting(() => producer.commit()));
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
