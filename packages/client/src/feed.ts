import type { Connection } from "./connection/port.ts";
import { type CoreOptions, openCore } from "./core.ts";
import type { TopicSource } from "./sync/source.ts";

export type { TopicSink, Update } from "./sync/source.ts";

/** The changes of topics as they come, for programs that keep what they need of them themselves. */
export interface Feed extends TopicSource {
  readonly connection: Pick<Connection, "status" | "subscribe" | "connect" | "pause">;
  close(): Promise<void>;
}

/** Opens a feed. The sink says where each topic goes on from, and is told what changed, through lost lines and stale positions. */
export function openFeed(options: Omit<CoreOptions, "storage">): Feed {
  const { connection, socketSource, close } = openCore(options);
  return {
    connection,
    follow: (topic, sink, signal) => socketSource.follow(topic, sink, signal),
    close: () => close(),
  };
}
