import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { pino } from "pino";
import { openDatabase } from "../../../packages/server/src/database/database.ts";
import { startEmbeddedPostgres } from "../../../packages/server/src/database/embedded.ts";
import { migrate } from "../../../packages/server/src/database/migrate.ts";
import { systemClock } from "../../../packages/server/src/kit/clock.ts";

/** The embedded PostgreSQL with its own settings: every commit waits for the disk. */
export interface Postgres extends AsyncDisposable {
  readonly pid: number;
  readonly version: string;
  /** Makes a database: with Khala's tables, or empty. */
  create(kind: "khala" | "empty"): Promise<string>;
  /** Writes out what is dirty, so that a run does not pay for the one before it. */
  checkpoint(): Promise<void>;
}

/** Starts the server in a temporary folder. */
export async function startPostgres(): Promise<Postgres> {
  const dataDir = await mkdtemp(join(tmpdir(), "khala-bench-"));
  const server = await startEmbeddedPostgres({ dataDir, clock: systemClock, newPassword: randomUUID });
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  const { rows } = await admin.query<{ server_version: string }>("SHOW server_version");
  let made = 0;
  return {
    pid: server.pid,
    version: rows[0]!.server_version,
    async create(kind) {
      const name = `bench_${++made}`;
      await admin.query(`CREATE DATABASE ${name}`);
      const url = new URL(server.url);
      url.pathname = `/${name}`;
      if (kind === "khala") {
        const log = pino({ level: "silent" });
        const database = openDatabase({ url: url.toString(), poolSize: 1, log });
        await migrate(database, log).finally(() => database.close());
      }
      return url.toString();
    },
    async checkpoint() {
      await admin.query("CHECKPOINT");
    },
    async [Symbol.asyncDispose]() {
      await admin.end();
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}
