import { KhalaError } from "@khala/contracts";
import { blockingCall } from "./blocking_calls.ts";
import { type KafkaSettings, loadClient, RECONNECT, tls } from "./client.ts";

/** The callback of the addon. */
export type Done<T> = (error: Error | null, value: T) => void;

/** The methods of every consumer of the addon. */
export interface NativeClient {
  connect(options: { timeout: number }, done: Done<unknown>): void;
  disconnect(done: Done<unknown>): void;
  getMetadata(options: { allTopics: boolean; timeout: number }, done: Done<unknown>): void;
  setDefaultConsumeTimeout(ms: number): void;
  setDefaultIsTimeoutOnlyForFirstMessage(only: boolean): void;
  on(event: "event.error" | "error", listener: (error: Error) => void): void;
}

interface NativeModule<T> {
  readonly KafkaConsumer: new (properties: object, topicProperties: object) => T;
}

const CONNECT_MS = 30_000;

/** Makes a consumer of the addon that commits only on request. It is not connected yet, so that listeners can be added. */
export async function makeNativeConsumer<T extends NativeClient>(
  { bootstrap, clientId, sasl, ssl, log }: KafkaSettings,
  groupId: string,
  properties: Readonly<Record<string, unknown>>,
): Promise<T> {
  const { KafkaConsumer } = await loadClient<NativeModule<T>>("@confluentinc/kafka-javascript");
  const native = new KafkaConsumer(
    {
      "bootstrap.servers": bootstrap,
      "client.id": clientId,
      "group.id": groupId,
      "security.protocol": `${sasl ? "sasl_" : ""}${ssl ? "ssl" : "plaintext"}`,
      ...(sasl && {
        "sasl.mechanisms": sasl.mechanism.toUpperCase(),
        "sasl.username": sasl.username,
        "sasl.password": sasl.password,
      }),
      ...tls(ssl),
      ...RECONNECT,
      "enable.auto.commit": false,
      "enable.auto.offset.store": false,
      ...properties,
    },
    { "auto.offset.reset": "earliest" },
  );
  for (const event of ["event.error", "error"] as const)
    native.on(event, (error) => log?.("warn", error.message));
  return native;
}

/** Connects it. It returns available records at once: the waiting is done here, and takes no thread. */
export async function connectNative(native: NativeClient): Promise<void> {
  try {
    await blockingCall(() => called((done) => native.connect({ timeout: CONNECT_MS }, done)));
  } catch (error) {
    const message = `Kafka cannot be reached: ${(error as Error).message}. Check KAFKA_BOOTSTRAP_SERVERS and the brokers.`;
    throw new KhalaError("unavailable", message, {}, { cause: error });
  }
  native.setDefaultConsumeTimeout(0);
  native.setDefaultIsTimeoutOnlyForFirstMessage(true);
}

/** A call of the addon as a promise. */
export function called<T>(call: (done: Done<T>) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    call((error, value) => (error ? reject(error) : resolve(value)));
  });
}
