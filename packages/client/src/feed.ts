import type { Connection } from "./connection/port.ts";
import { type CoreOptions, openCore } from "./core.ts";
import type { TopicSource } from "./sync/source.ts";

export type { TopicSink, Update } from "./sync/source.ts";

/** The raw changes of topics, for programs that keep their own state. */
export interface Feed extends TopicSource {
  readonly connection: Pick<Connection, "status" | "subscribe" | "connect" | "pause">;
  close(): Promise<void>;
}

/** Opens a feed. The sink provides the position to resume from and receives all changes, across reconnects and stale positions. */
export function openFeed(options: Omit<CoreOptions, "storage">): Feed {
  const { connection, socketSource, close } = openCore(options);
  return {
    connection,
    follow: (topic, sink, signal) => socketSource.follow(topic, sink, signal),
    close: () => close(),
  };
}
