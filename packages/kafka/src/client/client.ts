import { readFile } from "node:fs/promises";
import { KhalaError } from "@khala/contracts";
import type { KafkaAdmin, KafkaConsumer, KafkaProducer } from "./client_types.ts";
import { kafkaCode } from "./kafka_errors.ts";
import { OpenCalls } from "./open_calls.ts";

/** Settings of librdkafka, by their own names. */
export type Properties = Readonly<Record<string, string | number | boolean>>;

/** The addresses of the brokers, and the login. */
export interface KafkaSettings {
  /** `host:port`, several with commas between them. */
  readonly bootstrap: string;
  readonly clientId: string;
  readonly sasl?: {
    readonly mechanism: "plain" | "scram-sha-256" | "scram-sha-512";
    readonly username: string;
    readonly password: string;
  };
  /** TLS; `{}` for a broker whose certificate the system trusts. Each is a file name, or PEM. */
  readonly ssl?: {
    readonly ca?: string;
    readonly cert?: string;
    readonly key?: string;
    readonly passphrase?: string;
  };
  /** Gets the client's log lines; without it, nothing is logged. */
  readonly log?: (level: "error" | "warn" | "info" | "debug", message: string) => void;
}

export interface ProducerOptions {
  /** Makes it transactional: stable per slot of a process, and unique among running ones. */
  readonly transactionalId?: string;
  readonly transactionTimeoutMs?: number;
  readonly properties?: Properties;
}

export interface ConsumerOptions {
  readonly groupId: string;
  readonly properties?: Properties;
}

/** Makes producers, consumers and admins for one cluster. Each has its own connection. */
export interface KafkaClient {
  producer(options?: ProducerOptions): KafkaProducer;
  /** A plain consumer for tests and benchmarks, from the beginning of its topics. The board reads by `joinGroup`. */
  consumer(options: ConsumerOptions): KafkaConsumer;
  admin(): KafkaAdmin;
}

interface NativeModule {
  readonly KafkaJS: {
    readonly Kafka: new (
      config: object,
    ) => {
      producer(config: object): KafkaProducer;
      consumer(config: object): KafkaConsumer;
      admin(config?: object): KafkaAdmin;
    };
  };
}

interface ClientErrors {
  readonly KafkaJSGroupCoordinatorNotFound: unknown;
  KafkaJSGroupCoordinatorNotAvailableError?: unknown;
}

const CLIENT = "@confluentinc/kafka-javascript";
/** Its errors. One that it throws after a group lost its coordinator is missing there, which would end the process. */
const ERRORS = `${CLIENT}/lib/kafkajs/_error.js`;
// The default of 100 ms makes exactly-once 2.5 times as slow: a transaction is several short waits.
const COMMON: Properties = { "retry.backoff.ms": 10, "retry.backoff.max.ms": 50 };
/** A broker that comes back is noticed within this time; the default is 10 s. */
export const RECONNECT: Properties = { "reconnect.backoff.max.ms": 1_000 };
/**
 * The fetch settings of readers. The end of a partition whose last record is a marker is noticed after the first of these. A reader
 * with a full queue fetches again after the last: by default after a second, long after the queue is empty.
 */
export const FETCH: Properties = {
  "fetch.wait.max.ms": 100,
  "fetch.error.backoff.ms": 50,
  "fetch.queue.backoff.ms": 10,
};
const CONSUMER: Properties = {
  "js.consumer.max.batch.size": 500,
  "js.consumer.max.cache.size.per.worker.ms": 5_000,
};

/** Loads the native client and configures it for a cluster. Nothing is connected yet. */
export async function openKafkaClient(settings: KafkaSettings): Promise<KafkaClient> {
  // The native client would print a value it cannot open, which may be a key.
  await readPems(settings.ssl);
  const { KafkaJS } = await loadClient<NativeModule>(CLIENT);
  const errors = await loadClient<ClientErrors>(ERRORS);
  errors.KafkaJSGroupCoordinatorNotAvailableError ??= errors.KafkaJSGroupCoordinatorNotFound;
  const kafka = new KafkaJS.Kafka({
    ...COMMON,
    ...RECONNECT,
    ...tls(settings.ssl),
    kafkaJS: {
      brokers: settings.bootstrap.split(",").map((broker) => broker.trim()),
      clientId: settings.clientId,
      ssl: settings.ssl !== undefined,
      ...(settings.sasl && { sasl: { ...settings.sasl } }),
      logger: logger(settings.log),
    },
  });
  return {
    producer({ transactionalId, transactionTimeoutMs, properties } = {}) {
      return kafka.producer({
        ...properties,
        kafkaJS: {
          idempotent: true,
          ...(transactionalId !== undefined && { transactionalId }),
          ...(transactionTimeoutMs !== undefined && { transactionTimeout: transactionTimeoutMs }),
        },
      });
    },
    consumer({ groupId, properties }) {
      return kafka.consumer({
        ...CONSUMER,
        ...properties,
        kafkaJS: { groupId, fromBeginning: true, autoCommit: false },
      });
    },
    admin: () => closableAdmin(kafka.admin()),
  };
}

/** Imports a module that the root install leaves out; its types are ours, so that nothing else needs it. */
export async function loadClient<T>(name: string): Promise<T> {
  try {
    const loaded = (await import(/* @vite-ignore */ name)) as T & { readonly default?: T };
    return loaded.default ?? loaded;
  } catch (error) {
    const reason = (error as Error).message.split("\n", 1)[0];
    throw new KhalaError(
      "unavailable",
      `The Kafka client ${name} cannot be loaded: ${reason}. Add it with \`npm install @khala/kafka\`, or run \`npm ci\` in packages/kafka of a checkout. Where its binary cannot be downloaded it is built from source: packages/kafka/README.md says what that needs.`,
      {},
      { cause: error },
    );
  }
}

/** Whether a setting is the PEM itself, and not the name of a file. */
function isPem(text: string): boolean {
  return text.trimStart().startsWith("-----BEGIN");
}

/** The PEMs of the TLS settings, each of which may name a file. */
export async function readPems(ssl: KafkaSettings["ssl"] = {}) {
  const { ca, cert, key } = ssl;
  return {
    ...(ca !== undefined && { ca: await pem("KAFKA_SSL_CA", ca) }),
    ...(cert !== undefined && { cert: await pem("KAFKA_SSL_CERT", cert) }),
    ...(key !== undefined && { key: await pem("KAFKA_SSL_KEY", key) }),
  };
}

async function pem(name: string, text: string): Promise<string> {
  if (isPem(text)) return text;
  try {
    return await readFile(text, "utf8");
  } catch (error) {
    // Leaves out the text and the cause, which contains it: it may be a key that lacks its first line.
    const { code = "no such file" } = error as NodeJS.ErrnoException;
    const message = `${name} is neither PEM, which begins with "-----BEGIN", nor a readable file (${code}).`;
    throw new KhalaError("invalid_request", message, { field: name });
  }
}

/** The client's TLS settings. */
export function tls(ssl: KafkaSettings["ssl"]): Properties {
  const properties: Record<string, string> = {};
  const put = (name: string, text: string | undefined) => {
    if (text !== undefined) properties[`${name}.${isPem(text) ? "pem" : "location"}`] = text;
  };
  put("ssl.ca", ssl?.ca);
  put("ssl.certificate", ssl?.cert);
  put("ssl.key", ssl?.key);
  if (ssl?.passphrase !== undefined) properties["ssl.key.password"] = ssl.passphrase;
  return properties;
}

function logger(log: KafkaSettings["log"]): object {
  const say = (level: Parameters<NonNullable<typeof log>>[0]) => (message: string) => log?.(level, message);
  const self: object = {
    error: say("error"),
    warn: say("warn"),
    info: say("info"),
    debug: say("debug"),
    setLogLevel: () => {},
    namespace: () => self,
  };
  return self;
}

/** An admin whose `disconnect` waits for its calls: the addon crashes when a call meets a closed client. */
function closableAdmin(admin: KafkaAdmin): KafkaAdmin {
  const calls = new OpenCalls();
  return {
    connect: () => admin.connect(),
    createTopics: (options) => calls.run(() => admin.createTopics(options)),
    listTopics: (options) => calls.run(() => admin.listTopics(options)),
    fetchTopicMetadata: (options) => calls.run(() => admin.fetchTopicMetadata(options)),
    async disconnect() {
      await calls.close();
      await admin.disconnect();
    },
  };
}

const TIMEOUT_MS = 10_000;

/** Uses the admin client of a cluster on a connection of its own. Throws with the reason if no broker accepts the login. */
export async function withAdmin<T>(kafka: KafkaSettings, use: (admin: KafkaAdmin) => Promise<T>): Promise<T> {
  let complaint: string | undefined;
  const log: KafkaSettings["log"] = (level, message) => {
    if (level === "error") complaint = message;
    kafka.log?.(level, message);
  };
  const admin = (await openKafkaClient({ ...kafka, log })).admin();
  await admin.connect();
  try {
    return await use(admin);
  } catch (error) {
    // Negative codes are the client's own: no broker has answered.
    throw (kafkaCode(error) ?? 0) < 0 ? unreached(error as Error, complaint) : error;
  } finally {
    await admin.disconnect();
  }
}

/** The topics visible with these settings. */
export function listTopics(kafka: KafkaSettings): Promise<readonly string[]> {
  return withAdmin(kafka, (admin) => admin.listTopics({ timeout: TIMEOUT_MS }));
}

/** The client's error does not contain the reason, such as a refused certificate or password. Its log does. */
function unreached(error: Error, complaint = error.message): KhalaError {
  const reason = complaint.replace(/^\[thrd:.*?\]: /, "");
  return new KhalaError(
    "unavailable",
    `Kafka cannot be reached: ${reason}. Check KAFKA_BOOTSTRAP_SERVERS, the settings KAFKA_SSL_* and KAFKA_SASL_*, and the brokers.`,
  );
}
