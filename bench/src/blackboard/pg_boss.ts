import { importPeer } from "../../peers/import_peer.ts";

// What is used of pg-boss.
interface PgBossJob<Data> {
  readonly id: string;
  readonly data: Data;
}
/** Runs statements of pg-boss within a transaction of the caller's. */
export interface InTransaction {
  readonly db: { executeSql(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> };
}
export interface PgBoss {
  on(event: "error", listener: (error: Error) => void): void;
  start(): Promise<unknown>;
  stop(): Promise<void>;
  createQueue(name: string): Promise<void>;
  insert(queue: string, jobs: readonly { readonly data: unknown }[], how?: InTransaction): Promise<unknown>;
  fetch<Data>(queue: string, options: { batchSize: number }): Promise<readonly PgBossJob<Data>[]>;
  complete(queue: string, ids: readonly string[], data?: object, how?: InTransaction): Promise<unknown>;
}
interface PgBossModule {
  readonly PgBoss: new (options: object) => PgBoss;
}

/** Opens pg-boss with these queues. It keeps no schedules: nothing here has any. */
export async function openPgBoss(connectionString: string, queues: readonly string[]): Promise<PgBoss> {
  const { PgBoss } = await importPeer<PgBossModule>("pg-boss");
  const boss = new PgBoss({ connectionString, max: 10, schedule: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  for (const queue of queues) await boss.createQueue(queue);
  return boss;
}
