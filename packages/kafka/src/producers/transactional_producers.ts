import { KhalaError } from "@khala/contracts";
import { backoff, type Context } from "@khala/server/blackboard";
import { blockingCall, endlessCall } from "../client/blocking_calls.ts";
import type { KafkaClient, Properties } from "../client/client.ts";
import type { KafkaProducer, NativeProducer } from "../client/client_types.ts";
import {
  isFenced,
  isTimeout,
  isUnanswered,
  noAnswer,
  retryTimeouts,
  retryWithoutCoordinator,
  toKhalaError,
  transactionTimedOut,
} from "../client/kafka_errors.ts";
import { nativeOf, produceAll, WITHOUT_REPORTS } from "../client/native_producer.ts";
import type { ResolvedSettings } from "../settings.ts";
import {
  connectProducer,
  discardProducer,
  disconnectProducer,
  Pool,
  PRODUCER_TIMEOUT_MS,
} from "./producer_pool.ts";
import type { Producers, Transaction } from "./producers.ts";

/** Abandons sending offsets after this time: a client that has lost its brokers would wait for ever. */
const OFFSETS_MS = 30_000;

/** Producers used for transactions only, each under an id of this process. */
export function transactionalProducers(
  context: Pick<Context, "clock" | "log" | "random">,
  client: KafkaClient,
  settings: ResolvedSettings,
  properties: Properties,
): Producers {
  const { partitions } = settings;
  const ids: TransactionalId[] = [];
  /** The id of a slot. The process may have a new name by now, which was not fenced yet. */
  const idOf = async (slot: number): Promise<TransactionalId> => {
    const { transactionalId } = settings;
    const own = typeof transactionalId === "string" ? transactionalId : await transactionalId();
    const name = `${own}-${slot}`;
    const known = ids[slot];
    const id = known?.name === name ? known : new TransactionalId(context, name);
    ids[slot] = id;
    return id;
  };
  const pool = new Pool(settings.producers, async (slot) => {
    const id = await idOf(slot);
    id.refuseWhileContested();
    // A new one for each try: a producer whose start failed cannot be used again.
    const producer = await retryWithoutCoordinator(context, PRODUCER_TIMEOUT_MS, () =>
      connectProducer(
        client.producer({
          transactionalId: id.name,
          transactionTimeoutMs: PRODUCER_TIMEOUT_MS,
          properties: { ...properties, ...WITHOUT_REPORTS },
        }),
      ),
    );
    return { id, producer, native: nativeOf(producer) };
  });
  return {
    async transaction(work) {
      const lease = await pool.take().catch((error: unknown) => {
        throw toKhalaError(context, error);
      });
      const { id, producer, native } = lease.value;
      const beganAt = context.clock.now();
      let healthy = false;
      /** Offsets being sent: the producer must not be called meanwhile. */
      let sending: Promise<unknown> = Promise.resolve();
      const sendOffsets: Transaction["sendOffsets"] = (consumer, topics) =>
        retryTimeouts(context, PRODUCER_TIMEOUT_MS, () =>
          atMost(context, OFFSETS_MS, () => {
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
          { id: id.name, sendOffsets },
          { producer, native, partitions },
          work,
        );
        healthy = true;
        return result;
      } catch (error) {
        // The call is still running, and no other can be made.
        if (isUnanswered(error)) throw toKhalaError(context, error);
        const reason = isFenced(error) ? error : await abort(context, producer);
        // The client does not always find a coordinator again after it stalled: each further call would fail like this one.
        healthy = reason === undefined && !isTimeout(error);
        if (!isFenced(reason)) throw toKhalaError(context, error);
        // The brokers abort a transaction that takes too long, for example after the loss of a broker: no other producer is involved.
        if (context.clock.now() - beganAt >= PRODUCER_TIMEOUT_MS / 2) throw transactionTimedOut(reason);
        id.fenced();
        throw toKhalaError(context, reason);
      } finally {
        lease.release(healthy);
        if (!healthy) discardProducer(context, producer, sending);
      }
    },
    async ready() {
      const lease = await pool.take();
      lease.release(true);
    },
    async stop() {
      const producers = await pool.drain();
      await Promise.all(producers.map(({ producer }) => disconnectProducer(producer)));
    },
  };
}

/** The writer of a transaction, and the original number of partitions of its topics. */
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
      const sending = (async () => produceAll(native, records, partitions))();
      sending.catch(() => {});
      sends.push(sending);
      return sending;
    },
    sendOffsets,
  });
  // Before the commit, which does not know of a record that the client itself refused.
  await Promise.all(sends);
  // It waits for the records. Its own limit is 5 s, but it runs on: the second call waits for the same commit.
  await retryTimeouts(context, PRODUCER_TIMEOUT_MS, () => blockingCall(() => producer.commit()));
  return result;
}

/** Abandons a call that may block without end, after `ms`. */
async function atMost(
  { clock }: Pick<Context, "clock">,
  ms: number,
  call: () => Promise<void>,
): Promise<void> {
  const late = Promise.withResolvers<never>();
  late.promise.catch(() => {});
  const cancel = clock.after(ms, () => late.reject(noAnswer("The coordinator of a group")));
  try {
    await endlessCall(call, late.promise);
  } finally {
    cancel();
  }
}

/** Aborts the open transaction. Returns the error that makes the producer unusable, if any. */
async function abort(context: Pick<Context, "clock" | "log">, producer: KafkaProducer): Promise<unknown> {
  try {
    // One try: the next producer of this id ends the transaction as well.
    if (producer.isActive()) await blockingCall(() => producer.abort());
    return undefined;
  } catch (error) {
    context.log.warn(
      { err: (error as Error).message },
      "a transaction was not aborted: its producer is replaced",
    );
    return error;
  }
}

/** Fewer fencings than this may come from a replaced process, or a lost broker. */
const SUSPECT = 3;
const WINDOW_MS = 60_000;
const WAIT = { base: 500, cap: 15_000 };

/**
 * A transactional id, and how often others have fenced it. Two processes with one id would fence each other for ever:
 * each waits longer and longer before it uses the id again, and logs the cause.
 */
export class TransactionalId {
  readonly name: string;
  readonly #context: Pick<Context, "clock" | "log" | "random">;
  #fencedAt: number[] = [];
  #waitUntil = 0;

  constructor(context: Pick<Context, "clock" | "log" | "random">, name: string) {
    this.#context = context;
    this.name = name;
  }

  /** Records that another producer has taken the id over. */
  fenced(): void {
    const { clock, log, random } = this.#context;
    const now = clock.now();
    this.#fencedAt = [...this.#fencedAt.filter((at) => at > now - WINDOW_MS), now];
    const over = this.#fencedAt.length - SUSPECT;
    if (over < 0) return;
    const waitMs = backoff(over, random, WAIT);
    this.#waitUntil = now + waitMs;
    log.error(
      { transactional_id: this.name, times: this.#fencedAt.length, wait_ms: Math.round(waitMs) },
      "another process uses this transactional id: give every process its own KAFKA_TX_ID",
    );
  }

  /** Throws while it is too early to use the id again. */
  refuseWhileContested(): void {
    const waitMs = Math.ceil(this.#waitUntil - this.#context.clock.now());
    if (waitMs <= 0) return;
    throw new KhalaError(
      "unavailable",
      `Another process uses the transactional id ${this.name}. Give every process its own KAFKA_TX_ID. This process tries again.`,
      { retry_after_ms: waitMs },
    );
  }
}
