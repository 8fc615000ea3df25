import { Calls } from "./calls.ts";
import type { KafkaAdmin } from "./client_types.ts";

/** An admin that ends in order: what is under way ends first, and what comes later is refused. */
export function orderlyAdmin(admin: KafkaAdmin): KafkaAdmin {
  const calls = new Calls();
  return {
    connect: () => admin.connect(),
    createTopics: (options) => calls.run(() => admin.createTopics(options)),
    deleteTopics: (options) => calls.run(() => admin.deleteTopics(options)),
    listTopics: (options) => calls.run(() => admin.listTopics(options)),
    fetchTopicMetadata: (options) => calls.run(() => admin.fetchTopicMetadata(options)),
    async disconnect() {
      await calls.close();
      await admin.disconnect();
    },
  };
}
