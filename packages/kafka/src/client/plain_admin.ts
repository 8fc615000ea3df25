import { type KafkaSettings, loadClient, readPems } from "./client.ts";

// The part of @platformatic/kafka 2.12.1 that is used: its Admin, for calls that the native client lacks or does not survive.
interface AdminModule {
  readonly Admin: new (options: object) => PlainAdmin;
}

/** The administration of a cluster in plain JavaScript. */
export interface PlainAdmin {
  describeConfigs(options: {
    readonly resources: readonly { readonly resourceType: number; readonly resourceName: string }[];
  }): Promise<ConfigDescription[]>;
  listConsumerGroupOffsets(options: {
    /** For all partitions with a committed offset, or for the named ones. */
    readonly groups: readonly (string | GroupPartitions)[];
    readonly requireStable: boolean;
  }): Promise<GroupOffsetsFound[]>;
  /** `forceUpdate` asks the brokers, even if the answer is cached. */
  metadata(options: { readonly topics: readonly string[]; readonly forceUpdate?: boolean }): Promise<{
    readonly brokers: ReadonlyMap<number, unknown>;
    readonly topics: ReadonlyMap<string, { readonly partitionsCount: number }>;
  }>;
  listOffsets(options: {
    readonly topics: readonly {
      readonly name: string;
      readonly partitions: readonly { readonly partitionIndex: number; readonly timestamp: bigint }[];
    }[];
    readonly isolationLevel: number;
  }): Promise<
    {
      readonly name: string;
      readonly partitions: readonly { readonly partitionIndex: number; readonly offset: bigint }[];
    }[]
  >;
  describeGroups(options: {
    readonly groups: readonly string[];
  }): Promise<
    ReadonlyMap<
      string,
      { readonly members: ReadonlyMap<string, { readonly id: string; readonly clientId: string }> }
    >
  >;
  /** All of them, if none is named. */
  removeMembersFromConsumerGroup(options: {
    readonly groupId: string;
    readonly members?: readonly { readonly memberId: string; readonly reason: string }[];
  }): Promise<void>;
  close(): Promise<void>;
}

interface ConfigDescription {
  readonly resourceName: string;
  readonly configs: readonly { readonly name: string; readonly value: string | null }[];
}

interface GroupPartitions {
  readonly groupId: string;
  readonly topics: readonly { readonly name: string; readonly partitionIndexes: readonly number[] }[];
}

/** The committed offsets of a group. */
export interface GroupOffsetsFound {
  readonly groupId: string;
  readonly topics: readonly {
    readonly name: string;
    readonly partitions: readonly { readonly partitionIndex: number; readonly committedOffset: bigint }[];
  }[];
}

const CLIENT = "@platformatic/kafka";
const TIMEOUT_MS = 10_000;
/** Leaders and coordinators move within moments. */
const RETRIES = 3;
const RETRY_MS = 50;

/** Opens it. It connects at its first call. */
export async function openPlainAdmin({ bootstrap, clientId, sasl, ssl }: KafkaSettings): Promise<PlainAdmin> {
  const { Admin } = await loadClient<AdminModule>(CLIENT);
  return new Admin({
    clientId,
    bootstrapBrokers: bootstrap.split(",").map((broker) => broker.trim()),
    timeout: TIMEOUT_MS,
    connectTimeout: TIMEOUT_MS,
    retries: RETRIES,
    retryDelay: RETRY_MS,
    ...(sasl && { sasl: { ...sasl, mechanism: sasl.mechanism.toUpperCase() } }),
    ...(ssl && { tls: await tlsOptions(ssl) }),
  });
}

async function tlsOptions(ssl: NonNullable<KafkaSettings["ssl"]>): Promise<object> {
  const { passphrase } = ssl;
  return { ...(await readPems(ssl)), ...(passphrase !== undefined && { passphrase }) };
}
