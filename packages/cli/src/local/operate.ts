import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { App, Config } from "@khala/server";
import pg from "pg";
import { COMMAND, readSettings, type SettingOptions } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { loadApp } from "./load_app.ts";

export interface OperatingOptions extends SettingOptions {
  readonly app?: string;
  readonly json?: boolean;
}

/** The arguments of an operation on the database. */
export interface Operation {
  readonly config: Config;
  readonly app: App;
  readonly databaseUrl: string;
  /** Aborts on Ctrl-C. */
  readonly signal: AbortSignal;
}

/** The URL of the database that servers here use: the setting's, or that of the embedded one. */
export function databaseUrlOf({ DATABASE_URL, KHALA_DATA_DIR }: Config): string | undefined {
  if (DATABASE_URL) return DATABASE_URL;
  const file = join(KHALA_DATA_DIR, "postgres", "database_url");
  return existsSync(file) ? readFileSync(file, "utf8").trim() : undefined;
}

/** Prepares an operation and runs it; Ctrl-C stops it between two steps. */
export async function operate<T>(
  options: OperatingOptions,
  work: (operation: Operation) => Promise<T>,
): Promise<T> {
  const config = await readSettings(options);
  const databaseUrl = databaseUrlOf(config);
  if (!databaseUrl) {
    const advice = `Set DATABASE_URL, or start \`${COMMAND} dev\` for the embedded database.`;
    throw new Failure(`There is no database in ${config.KHALA_DATA_DIR}. ${advice}`, EXIT.usage);
  }
  const app = await loadApp(options.app);
  const stopped = "Stopped. Progress is kept; run the command again to resume.";
  return untilStopped(stopped, (signal) => work({ config, app, databaseUrl, signal }));
}

/** Runs `work` with a signal that aborts on Ctrl-C; then it fails with the message. */
export async function untilStopped<T>(
  message: string,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.once(signal, stop);
  try {
    return await work(stopping.signal);
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
    throw new Failure(message, EXIT.failed, { cause: error });
  } finally {
    for (const signal of signals) process.off(signal, stop);
  }
}

/** JSON of values that may hold 64-bit integers, which become strings. */
export function toJson(value: unknown): string {
  return JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner), 2);
}

const TIMEOUT_MS = 10_000;

/** Opens a connection, which the caller ends. */
export async function openClient(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: TIMEOUT_MS,
    query_timeout: TIMEOUT_MS * 6,
  });
  client.on("error", () => {}); // The statement that it breaks reports it.
  await client.connect();
  return client;
}

/** Runs one statement on a separate connection. */
export async function queryOnce<T>(
  url: string,
  { text, values = [] }: { readonly text: string; readonly values?: unknown[] },
): Promise<T[]> {
  const client = await openClient(url);
  try {
    return (await client.query(text, values)).rows as T[];
  } finally {
    await client.end();
  }
}
