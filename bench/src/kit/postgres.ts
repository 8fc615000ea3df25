import { randomUUID } from "node:crypto";
import pg from "pg";
import { pino } from "pino";
import { openDatabase } from "../../../packages/server/src/database/database.ts";
import { startEmbeddedPostgres } from "../../../packages/server/src/database/embedded.ts";
import { migrate } from "../../../packages/server/src/database/migrate.ts";
import { systemClock } from "../../../packages/server/src/kit/clock.ts";
import { runSummaries } from "../../../packages/server/src/sync/models/runtime.ts";
import { createReadModels } from "../../../packages/server/src/sync/read/read_models.ts";
import { hasEnded } from "./proc.ts";
import { tempFolder } from "./temp_folder.ts";

/** The embedded PostgreSQL with its own settings: every commit waits for the disk. */
export interface Postgres extends AsyncDisposable {
  readonly pid: number;
  /** Its version, and which settings matter. */
  readonly version: string;
  /** Makes a database: with Khala's tables, or empty. */
  create(kind: "khala" | "empty"): Promise<string>;
  /** Drops a database that nobody needs any more. */
  drop(url: string): Promise<void>;
  /** Writes out what is dirty, so that a run does not pay for the one before it. */
  checkpoint(): Promise<void>;
  /** Clears away what is dead in a database, for the same reason. */
  vacuum(url: string): Promise<void>;
}

/** Starts the server in a temporary folder. */
export async function startPostgres(): Promise<Postgres> {
  const folder = tempFolder("postgres");
  const options = {
    dataDir: folder.path,
    clock: systemClock,
    newPassword: randomUUID,
    // Several servers at once, and peers with pools of their own.
    settings: ["max_connections=200"],
  };
  const server = await startEmbeddedPostgres(options);
  const quit = () => endAtOnce(server.pid);
  process.once("exit", quit);
  folder.removeLast();
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  const { rows } = await admin.query<{ server_version: string }>("SHOW server_version");
  let made = 0;
  return {
    pid: server.pid,
    version: `PostgreSQL ${rows[0]!.server_version} (embedded with its own settings, but 200 connections: fsync and synchronous_commit on, shared_buffers 48 MB)`,
    async create(kind) {
      const name = `bench_${++made}`;
      await admin.query(`CREATE DATABASE ${name}`);
      const url = new URL(server.url);
      url.pathname = `/${name}`;
      if (kind === "khala") {
        const log = pino({ level: "silent" });
        const database = openDatabase({ url: url.toString(), poolSize: 1, log });
        try {
          await migrate(database, log);
          await createReadModels(database, [runSummaries]);
        } finally {
          await database.close();
        }
      }
      return url.toString();
    },
    async drop(url) {
      await admin.query(`DROP DATABASE ${new URL(url).pathname.slice(1)} WITH (FORCE)`);
    },
    async checkpoint() {
      await admin.query("CHECKPOINT");
    },
    async vacuum(url) {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      await client.query("VACUUM (ANALYZE)").finally(() => client.end());
    },
    async [Symbol.asyncDispose]() {
      await admin.end();
      await server.stop();
      process.off("exit", quit);
      folder[Symbol.dispose]();
    },
  };
}

/** When the program is broken off: it must not write to its folder any more when that is removed. */
function endAtOnce(pid: number): void {
  process.kill(pid, "SIGQUIT");
  const asleep = new Int32Array(new SharedArrayBuffer(4));
  for (let tries = 0; tries < 60 && !hasEnded(pid); tries++) Atomics.wait(asleep, 0, 0, 50);
}
