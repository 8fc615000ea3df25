import type { KafkaSettings } from "../client/client.ts";
import { openPlainAdmin } from "../client/plain_admin.ts";

const TOPIC = 2;

/** The settings of topics, which the native client cannot read. */
export interface TopicConfigs {
  /** Every setting by its name, by topic. A topic that does not exist is an error. */
  describe(topics: readonly string[]): Promise<ReadonlyMap<string, ReadonlyMap<string, string | null>>>;
  close(): Promise<void>;
}

/** Opens the settings of a cluster's topics. */
export async function openTopicConfigs(settings: KafkaSettings): Promise<TopicConfigs> {
  const admin = await openPlainAdmin(settings);
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
    close: () => admin.close(),
  };
}
