import type { AppendsOf, AppTypes, BoardTopics, TopicsOf } from "./app_types.ts";
import type { Connection } from "./connection/port.ts";
import { type CoreOptions, openCore } from "./core.ts";
import type { AnyAppends, Appends } from "./sync/appends/appends_port.ts";
import type { Sync, Topics } from "./sync/plane_port.ts";

export type { ConnectionState, ConnectionStatus } from "./connection/port.ts";
export type { CoreOptions as SyncClientOptions } from "./core.ts";
export type { Storage } from "./storage/storage.ts";
export { partOf } from "./sync/lists.ts";
export type { Item, ListOptions, ListSnapshot, Snapshot, Sync, Where } from "./sync/plane_port.ts";

/** Synced documents and their connection. */
export interface SyncClient<T extends Topics = BoardTopics, A extends object = AnyAppends> {
  readonly connection: Pick<Connection, "status" | "subscribe" | "connect" | "pause">;
  readonly sync: Sync<T> & Appends<A>;
  close(): Promise<void>;
}

/** A client with sync only, for a small bundle. Each tab has its own socket. */
export function createSyncClient<App extends AppTypes = AppTypes>(
  options: CoreOptions,
): SyncClient<TopicsOf<App>, AppendsOf<App>> {
  const { connection, sync, socketSource, close } = openCore<TopicsOf<App>, AppendsOf<App>>(options);
  sync.setSource(socketSource);
  return { connection, sync, close: () => close() };
}
