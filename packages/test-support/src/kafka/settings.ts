import { join } from "node:path";

/** The login that clients need. The brokers speak with each other in the clear, on another port. */
export interface KafkaDoor {
  readonly users?: Readonly<Record<string, string>>;
  readonly tls?: {
    /** PEM files: the key and its certificate in one, and the authority whose clients are let in. */
    readonly keystore: string;
    readonly truststore?: string;
    /** Accepts only clients with a certificate of that authority. */
    readonly clients?: boolean;
  };
}

export interface KafkaOptions extends KafkaDoor {
  /**
   * Tests kill it: the cluster misses it after seconds, and it is let back in when its last session is over. One that
   * nobody kills keeps its place however long a busy machine lets it stand still.
   */
  readonly mortal?: boolean;
  /** Settings of the broker, over those of the tests. */
  readonly properties?: Readonly<Record<string, string | number | boolean>>;
  /** The port of a proxy that clients are sent to, for a broker that is alone. */
  readonly advertised?: number;
  /** Flags of the Java machine, in place of those that make it start quickly. */
  readonly jvm?: readonly string[];
}

/** One broker of a cluster, with its three ports. */
export interface KafkaNode {
  readonly id: number;
  readonly dir: string;
  readonly directoryId: string;
  readonly client: number;
  readonly internal: number;
  readonly controller: number;
}

/** Prints that it has started, what goes wrong, and what is not allowed. */
export const LOG4J = `rootLogger.level=error
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{HH:mm:ss,SSS} %p %m (%c{1})%n%throwable
logger.server.name=kafka.server.KafkaRaftServer
logger.server.level=info
logger.access.name=kafka.authorizer.logger
logger.access.level=info
`;

/** The file that a broker is started with. */
export function properties(node: KafkaNode, nodes: readonly KafkaNode[], options: KafkaOptions): string {
  const listeners = (client: number) =>
    [
      `CLIENT://127.0.0.1:${client}`,
      `INTERNAL://127.0.0.1:${node.internal}`,
      `CONTROLLER://127.0.0.1:${node.controller}`,
    ].join(",");
  const replicas = Math.min(3, nodes.length);
  const inSync = Math.max(1, replicas - 1);
  const settings = {
    "process.roles": "broker,controller",
    "node.id": node.id,
    "controller.quorum.bootstrap.servers": nodes.map((n) => `127.0.0.1:${n.controller}`).join(","),
    listeners: listeners(node.client),
    "advertised.listeners": listeners(options.advertised ?? node.client),
    "listener.security.protocol.map": `CLIENT:${protocol(options)},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT`,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "log.dirs": join(node.dir, "data"),
    "auto.create.topics.enable": false,
    "default.replication.factor": replicas,
    "min.insync.replicas": inSync,
    "offsets.topic.replication.factor": replicas,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": replicas,
    "transaction.state.log.min.isr": inSync,
    "transaction.state.log.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": replicas,
    "share.coordinator.state.topic.min.isr": inSync,
    "share.coordinator.state.topic.num.partitions": 1,
    "broker.session.timeout.ms": options.mortal ? 9_000 : 120_000,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    // Compaction starts as soon as possible, so that tests wait less.
    "log.cleaner.backoff.ms": 500,
    ...users(options.users),
    ...tls(options.tls),
    ...options.properties,
  };
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${String(value).replaceAll("\\", "\\\\")}\n`)
    .join("");
}

/** Settings for `StorageTool format`, the same for every node of a cluster. */
export function formatArguments(
  clusterId: string,
  nodes: readonly KafkaNode[],
  { users = {} }: KafkaOptions,
): string[] {
  const controllers = nodes.map((n) => `${n.id}@127.0.0.1:${n.controller}:${n.directoryId}`);
  const args = ["-t", clusterId, "--initial-controllers", controllers.join(",")];
  for (const [name, password] of Object.entries(users))
    for (const mechanism of ["SCRAM-SHA-256", "SCRAM-SHA-512"])
      args.push("--add-scram", `${mechanism}=[name=${name},password=${password}]`);
  return args;
}

function protocol({ users, tls }: KafkaDoor): string {
  if (users) return tls ? "SASL_SSL" : "SASL_PLAINTEXT";
  return tls ? "SSL" : "PLAINTEXT";
}

function users(users: KafkaDoor["users"]): Record<string, string> {
  if (!users) return {};
  const entries = Object.entries(users).map(([name, password]) => `user_${name}="${password}"`);
  const modules = "org.apache.kafka.common.security";
  const scram = `${modules}.scram.ScramLoginModule required;`;
  return {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.client.plain.sasl.jaas.config": `${modules}.plain.PlainLoginModule required ${entries.join(" ")};`,
    "listener.name.client.scram-sha-256.sasl.jaas.config": scram,
    "listener.name.client.scram-sha-512.sasl.jaas.config": scram,
  };
}

function tls(tls: KafkaDoor["tls"]): Record<string, string> {
  if (!tls) return {};
  return {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": tls.keystore,
    ...(tls.truststore && { "ssl.truststore.type": "PEM", "ssl.truststore.location": tls.truststore }),
    ...(tls.clients && { "listener.name.client.ssl.client.auth": "required" }),
  };
}
