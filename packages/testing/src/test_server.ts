import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtemp } from "node:fs/promises";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SCOPES } from "@khala/contracts";
import { type App, type AppDefinition, createKhala, defineApp, type Khala, readConfig } from "@khala/server";
import { migrate, openDatabase, startEmbeddedPostgres, systemClock } from "@khala/server/testing";
import pg from "pg";
import { pino } from "pino";

export interface TestServerOptions {
  /** Further settings, as in the environment: `{ KHALA_ORIGINS: "https://example.com" }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface TestTokenOptions {
  /** Default "ada". */
  readonly sub?: string;
  /** Default "demo". */
  readonly org?: string;
  /** Default: every topic of the app, and every right but those of operators. */
  readonly scopes?: readonly string[];
}

/** A server in this process, with a database of its own. */
export interface TestServer extends AsyncDisposable {
  readonly url: string;
  readonly khala: Khala;
  /** A token that this server accepts. */
  token(options?: TestTokenOptions): Promise<string>;
  /** Stops the server and drops its database; so does `await using`. */
  stop(): Promise<void>;
}

/** Starts a server. The first of a process starts the embedded PostgreSQL; each gets a copy of an empty, migrated database. */
export async function startTestServer(
  definition: App | AppDefinition,
  { settings = {} }: TestServerOptions = {},
): Promise<TestServer> {
  const app = "streams" in definition ? definition : defineApp(definition);
  cluster ??= startCluster();
  const { url: clusterUrl } = await cluster.catch((error) => {
    cluster = undefined;
    throw error;
  });
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  // The default copies through the WAL: 350 to 500 ms, most of a start.
  await administer(clusterUrl, `CREATE DATABASE ${name} TEMPLATE ${TEMPLATE} STRATEGY FILE_COPY`);
  const drop = () => administer(clusterUrl, `DROP DATABASE ${name} WITH (FORCE)`);
  const config = readConfig({
    DATABASE_URL: databaseAt(clusterUrl, name),
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    KHALA_DATABASE_POOL: "5",
    ...settings,
  });
  const khala = await createKhala(app, { config, dev: true }).catch(async (error) => {
    await drop();
    throw error;
  });
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= khala.stop().finally(drop);
    return stopped;
  };
  return {
    ...{ url: khala.url, khala, stop },
    async token({ sub = "ada", org = "demo", scopes = scopesOf(app) } = {}) {
      const { issuer } = khala.auth;
      if (!issuer) throw new Error("This server cannot mint tokens: its KHALA_AUTH_* has public keys only.");
      return (await issuer.mint({ sub, org_id: org, scopes: [...scopes] })).token;
    },
    [Symbol.asyncDispose]: stop,
  };
}

function scopesOf({ models, streams }: App): string[] {
  const { ops: _, platform: __, ...rights } = SCOPES;
  const topics = models.all.map(({ topic }) => topic);
  return [...new Set([...topics, ...streams.map(({ scope }) => scope), ...Object.values(rights)])];
}

const TEMPLATE = "khala_template";
/** A test database need not survive the machine. */
const SETTINGS = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200"];
let cluster: Promise<{ readonly url: string }> | undefined;

/** The PostgreSQL of this process, with the template. */
async function startCluster(): Promise<{ readonly url: string }> {
  const folder = await mkdtemp(join(tmpdir(), "khala-testing-"));
  const server = await startEmbeddedPostgres({
    ...{ dataDir: folder, clock: systemClock, newPassword: randomUUID, settings: SETTINGS },
    unref: true,
  });
  removeAfterwards(server.pid, folder);
  await administer(server.url, `CREATE DATABASE ${TEMPLATE}`);
  const log = pino({ level: "silent" });
  const database = openDatabase({ url: databaseAt(server.url, TEMPLATE), poolSize: 1, log });
  await migrate(database, log).finally(() => database.close());
  return { url: server.url };
}

/** Ends PostgreSQL and removes its folder once this process is gone, however it ends. Test runners kill their workers. */
function removeAfterwards(pid: number, folder: string): void {
  const script = `process.stdin.resume().on("close", () => {
    try { process.kill(${pid}, "SIGQUIT"); } catch {}
    setTimeout(() => require("fs").rmSync(${JSON.stringify(folder)}, { recursive: true, force: true, maxRetries: 20 }), 300);
  });`;
  const reaper = spawn(process.execPath, ["-e", script], {
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  reaper.unref();
  (reaper.stdin as Socket).unref();
}

function databaseAt(url: string, name: string): string {
  const there = new URL(url);
  there.pathname = `/${name}`;
  return there.href;
}

async function administer(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}
