import { KhalaError } from "@khala/contracts";
import { type Context, runLoop, type Service, Wake, withTimeout } from "@khala/server/blackboard";
import { blockingCall } from "./blocking_calls.ts";
import type { KafkaSettings } from "./client.ts";
import { called, type NativeClient } from "./native_client.ts";
import { OpenCalls } from "./open_calls.ts";
import { openPlainAdmin } from "./plain_admin.ts";

/**
 * Notices lost brokers, and native clients that no longer see live brokers. A broker that its controller has given up reports for
 * a moment that there are none; a client that reads this forgets all brokers, and never looks for them again
 * (librdkafka's issue 5301). Another client of the same process sees them.
 */
export interface BrokerWatch extends Service {
  add(native: Pick<NativeClient, "getMetadata">): WatchedClient;
  /** Throws while no broker answers: a native client would wait for its own timeouts first. */
  requireBrokers(): void;
  /** The result of the call, unless no broker answers: then it rejects, and the call's own end is ignored. */
  whileReachable<T>(call: () => Promise<T>): Promise<T>;
}

/** The view of one client. */
export interface WatchedClient {
  /** Throws once the client is known to have lost its brokers, and must be replaced. */
  check(): void;
  /** Ends the watch; call it before the client is closed. */
  end(): Promise<void>;
}

/** The state of the brokers, and the watch over the clients. */
export interface WatchedKafka extends KafkaSettings {
  readonly watch?: Pick<BrokerWatch, "add">;
}

const ASK_MS = 1_000;
const POLL_MS = 5_000;
const ANSWER_MS = 5_000;
/** A disconnected client reconnects within seconds; an answer may be late because this process stalled. */
const MISSES = 2;

/** Watches the clients of a process. */
export async function openBrokerWatch(context: Context, kafka: KafkaSettings): Promise<BrokerWatch> {
  const admin = await openPlainAdmin(kafka);
  const watched = new Set<Watched>();

  let asking: Promise<boolean> | undefined;
  let unanswered = 0;
  let gone = false;
  /** Reject the calls that wait for brokers. */
  const interrupts = new Set<(error: KhalaError) => void>();

  /** Asks another client: if that gets no answer either, the brokers are gone. */
  async function ask(): Promise<boolean> {
    try {
      return (await admin.metadata({ topics: [], forceUpdate: true })).brokers.size > 0;
    } catch {
      return false;
    } finally {
      asking = undefined;
    }
  }

  /** Undefined while unknown. */
  async function areThere(): Promise<boolean | undefined> {
    asking ??= ask();
    const answer = await withTimeout<boolean | undefined>(context.clock, ASK_MS, asking, undefined);
    unanswered = answer === undefined ? unanswered + 1 : 0;
    return unanswered >= MISSES ? false : answer;
  }

  // Two loops: waiting for one client must not delay the check of the brokers.
  const asks = runLoop(context, "kafka brokers", {
    wake: new Wake(),
    idleMs: ASK_MS,
    async step() {
      const answer = await areThere();
      if (answer === undefined || answer !== gone) return false;
      gone = !answer;
      if (gone) {
        context.log.warn({}, "no Kafka broker answers: publishing is refused until one does");
        for (const interrupt of interrupts)
          interrupt(
            unavailable(
              "Kafka's brokers do not answer, and may or may not have stored it. Try again with the same id: it is published only once.",
            ),
          );
      } else context.log.info({}, "Kafka's brokers answer again");
      return false;
    },
  });
  const polls = runLoop(context, "kafka watch", {
    wake: new Wake(),
    idleMs: POLL_MS,
    async step(signal) {
      if (gone) return false;
      // One after the other: each client without brokers holds a thread until that is known.
      for (const client of watched) if (!signal.aborted) await client.poll();
      return false;
    },
  });
  function requireBrokers(): void {
    if (gone) throw unavailable("Kafka's brokers do not answer, so nothing was published. Try again.");
  }
  return {
    add(native) {
      const client = new Watched(native, () => watched.delete(client));
      watched.add(client);
      return client;
    },
    requireBrokers,
    async whileReachable<T>(call: () => Promise<T>) {
      requireBrokers();
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      interrupts.add(reject);
      call().then(resolve, reject);
      return promise.finally(() => interrupts.delete(reject));
    },
    async stop() {
      await Promise.all([asks.stop(), polls.stop()]);
      await admin.close();
    },
  };
}

function unavailable(message: string): KhalaError {
  return new KhalaError("unavailable", message, { retry_after_ms: ASK_MS });
}

class Watched implements WatchedClient {
  readonly #native: Pick<NativeClient, "getMetadata">;
  readonly #ended: () => void;
  readonly #calls = new OpenCalls();
  #misses = 0;

  constructor(native: Pick<NativeClient, "getMetadata">, ended: () => void) {
    this.#native = native;
    this.#ended = ended;
  }

  async poll(): Promise<void> {
    try {
      const options = { allTopics: false, timeout: ANSWER_MS };
      await this.#calls.run(() =>
        blockingCall(() => called((done) => this.#native.getMetadata(options, done))),
      );
      this.#misses = 0;
    } catch {
      this.#misses++;
    }
  }

  check(): void {
    if (this.#misses >= MISSES)
      throw new KhalaError(
        "unavailable",
        "This Kafka client cannot find a reachable broker any more. Khala replaces it.",
        { retry_after_ms: 1_000 },
      );
  }

  end(): Promise<void> {
    this.#ended();
    return this.#calls.close();
  }
}
