import { randomUUID } from "node:crypto";
import { mkdtemp, rm, statfs } from "node:fs/promises";
import { freemem, tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { pino } from "pino";
import { openDatabase } from "../../../server/src/database/database.ts";
import { embeddedBinaries, startEmbeddedPostgres } from "../../../server/src/database/embedded.ts";
import { migrate } from "../../../server/src/database/migrate.ts";
import { systemClock } from "../../../server/src/kit/clock.ts";
import { runSummaries, workerSummaries } from "../../../server/src/sync/models/runtime.ts";
import { createReadModels } from "../../../server/src/sync/read/read_models.ts";
import type { RunningService, Service } from "../services/service.ts";

export interface PostgresServiceOptions {
  /** Waits for the disk at every commit, as a user's server does. Tests do not. */
  readonly durable?: boolean;
}

/**
 * PostgreSQL with a template database that has the schema and the built-in read models: the server that KHALA_TEST_DATABASE_URL names, or the embedded one.
 * Its environment is DATABASE_URL, for administration, TEMPLATE, the database to copy, and HOW_TO_COPY.
 */
export function postgres({ durable = false }: PostgresServiceOptions = {}): Service {
  const given = process.env.KHALA_TEST_DATABASE_URL;
  return {
    name: "postgres",

    async available() {
      if (given) return undefined;
      try {
        embeddedBinaries();
        return undefined;
      } catch (error) {
        return (error as Error).message;
      }
    },

    start: async () =>
      given ? withTemplate(named(given)) : withTemplate(await startInTemporaryFolder(durable), FILE_COPY),
  };
}

/** A server that accepts connections. */
export type StartedPostgres = { readonly url: string } & Partial<RunningService> &
  Pick<RunningService, "stop">;

// Without a log of every page: much less work. PostgreSQL 14 does not know it yet.
const FILE_COPY = "STRATEGY file_copy";

/** A server named by the environment: it keeps running after the tests. */
export function named(url: string): StartedPostgres {
  return { url, stop: async () => {} };
}

/** Makes the template, which is dropped again before the server stops. */
export async function withTemplate(server: StartedPostgres, howToCopy = ""): Promise<RunningService> {
  const template = `khala_template_${randomUUID().replaceAll("-", "")}`;
  try {
    await administer(server.url, `CREATE DATABASE ${template}`);
    const log = pino({ level: "silent" });
    const database = openDatabase({ url: withDatabase(server.url, template), poolSize: 1, log });
    try {
      await migrate(database, log);
      await createReadModels(database, [runSummaries, workerSummaries]);
    } finally {
      await database.close();
    }
  } catch (error) {
    await server.stop();
    throw error;
  }
  return {
    env: { ...server.env, DATABASE_URL: server.url, TEMPLATE: template, HOW_TO_COPY: howToCopy },
    async stop() {
      await administer(server.url, `DROP DATABASE ${template}`).finally(server.stop);
    },
  };
}

const MEMORY = "/dev/shm";
const ROOMY_BYTES = 8 * 2 ** 30;

/** A folder in memory if there is plenty of it, where a copy of a database takes a tenth of the time; else one on disk. */
async function roomyMemory(): Promise<string> {
  const found = await statfs(MEMORY).catch(() => undefined);
  const free = found ? Math.min(found.bavail * found.bsize, freemem()) : 0;
  return free > ROOMY_BYTES ? MEMORY : tmpdir();
}

async function startInTemporaryFolder(durable: boolean): Promise<StartedPostgres> {
  const dataDir = await mkdtemp(join(durable ? tmpdir() : await roomyMemory(), "khala-postgres-"));
  const settings = ["max_connections=200"];
  if (!durable) settings.push("fsync=off", "synchronous_commit=off", "full_page_writes=off");
  const server = await startEmbeddedPostgres({
    dataDir,
    clock: systemClock,
    newPassword: randomUUID,
    settings,
  });
  return {
    url: server.url,
    async stop() {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Runs one statement outside any transaction. */
export async function administer(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

/** The URL of another database on the same server. */
export function withDatabase(url: string, name: string): string {
  const other = new URL(url);
  other.pathname = `/${name}`;
  return other.toString();
}
