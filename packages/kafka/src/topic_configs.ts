import { type KafkaSettings, loadClient, pem } from "./client.ts";

// What is used of @platformatic/kafka 2.12.1: its Admin, for the two calls that the native client lacks.
interface AdminModule {
  readonly Admin: new (options: object) => PlatformaticAdmin;
}

interface PlatformaticAdmin {
  describeConfigs(options: {
    readonly resources: readonly { readonly resourceType: number; readonly resourceName: string }[];
  }): Promise<ConfigDescription[]>;
  incrementalAlterConfigs(options: { readonly resources: readonly object[] }): Promise<void>;
  close(): Promise<void>;
}

interface ConfigDescription {
  readonly resourceName: string;
  readonly configs: readonly { readonly name: string; readonly value: string | null }[];
}

const CLIENT = "@platformatic/kafka";
const TOPIC = 2;
const SET = 0;
const TIMEOUT_MS = 10_000;

/** The settings of topics, which the native client can neither read nor change. */
export interface TopicConfigs {
  /** Every setting by its name, by topic. A topic that does not exist is an error. */
  describe(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<string, string | null>>>;
  /** Changes the named settings of a topic and leaves the others. */
  alter(topic: string, settings: Readonly<Record<string, string>>): Promise<void>;
  close(): Promise<void>;
}

/** Opens the settings of a cluster's topics. */
export async function openTopicConfigs({
  bootstrap,
  clientId,
  sasl,
  ssl,
}: KafkaSettings): Promise<TopicConfigs> {
  const { Admin } = await loadClient<AdminModule>(CLIENT);
  const admin = new Admin({
    clientId,
    bootstrapBrokers: bootstrap.split(",").map((broker) => broker.trim()),
    timeout: TIMEOUT_MS,
    connectTimeout: TIMEOUT_MS,
    ...(sasl && { sasl: { ...sasl, mechanism: sasl.mechanism.toUpperCase() } }),
    ...(ssl && { tls: await tlsOptions(ssl) }),
  });
  return {
    async describe(topics) {
      const described = await admin.describeConfigs({
        resources: topics.map((resourceName) => ({ resourceType: TOPIC, resourceName })),
      });
      return new Map(
        described.map(({ resourceName, configs }) => [
          resourceName,
          new Map(configs.map(({ name, value }) => [name, value])),
        ]),
      );
    },
    async alter(topic, settings) {
      const configs = Object.entries(settings).map(([name, value]) => ({
        name,
        value,
        configOperation: SET,
      }));
      await admin.incrementalAlterConfigs({
        resources: [{ resourceType: TOPIC, resourceName: topic, configs }],
      });
    },
    close: () => admin.close(),
  };
}

async function tlsOptions({ ca, cert, key, passphrase }: NonNullable<KafkaSettings["ssl"]>): Promise<object> {
  return {
    ...(ca !== undefined && { ca: await pem(ca) }),
    ...(cert !== undefined && { cert: await pem(cert) }),
    ...(key !== undefined && { key: await pem(key) }),
    ...(passphrase !== undefined && { passphrase }),
  };
}
