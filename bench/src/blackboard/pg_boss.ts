import { importPeer } from "../../peers/import_peer.ts";

// What is used of pg-boss.
export interface PgBossJob<Data> {
  readonly id: string;
  readonly data: Data;
}
type Outcome = readonly { readonly id: string; readonly status: "completed" }[];
export interface PgBoss {
  on(event: "error", listener: (error: Error) => void): void;
  start(): Promise<unknown>;
  stop(): Promise<void>;
  createQueue(name: string): Promise<void>;
  insert(queue: string, jobs: readonly { readonly data: unknown }[]): Promise<unknown>;
  fetch<Data>(queue: string, options: { batchSize: number }): Promise<readonly PgBossJob<Data>[]>;
  complete(queue: string, ids: readonly string[]): Promise<unknown>;
  fail(queue: string, ids: readonly string[]): Promise<unknown>;
  work<Data>(
    queue: string,
    options: object,
    work: (jobs: readonly PgBossJob<Data>[]) => Promise<Outcome | undefined>,
  ): Promise<string>;
}
interface PgBossModule {
  readonly PgBoss: new (options: object) => PgBoss;
}

/** Opens pg-boss with these queues. It keeps no schedules: nothing here has any. */
export async function openPgBoss(
  connectionString: string,
  queues: readonly string[],
  options: object = {},
): Promise<PgBoss> {
  const { PgBoss } = await importPeer<PgBossModule>("pg-boss");
  const boss = new PgBoss({ connectionString, max: 10, schedule: false, ...options });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  for (const queue of queues) await boss.createQueue(queue);
  return boss;
}
