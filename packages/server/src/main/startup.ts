import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Logger, pino } from "pino";
import { lockDataFolder } from "../database/data_folder.ts";
import { type Database, openDatabase } from "../database/database.ts";
import { startEmbeddedPostgres } from "../database/embedded.ts";
import { migrate } from "../database/migrate.ts";
import { type Clock, systemClock } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { type NewId, type Random, uuidv7 } from "../kit/ids.ts";
import { openQuotas } from "../kit/quota.ts";
import type { SpanRing } from "../kit/span_ring.ts";
import { openTelemetry, readResource } from "../kit/telemetry.ts";
import type { Config } from "./config.ts";

export interface KhalaOptions {
  readonly config: Config;
  /** Development: makes its own key, mints tokens for every program on this machine. */
  readonly dev?: boolean;
  /** Whether the app is the demo, which the dashboard explains. */
  readonly demo?: boolean;
  /** Folder of the dashboard's built files, to be served at `/`; without one there is a plain page. */
  readonly dashboard?: string;
  readonly log?: Logger;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly newId?: NewId;
}

/** The version of this package. */
export const VERSION = (
  JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string }
).version;

/** Closes what was opened; called in reverse order. */
export type Closers = (() => Promise<void> | void)[];

/** Calls all of them, also when one fails: what was opened first, such as PostgreSQL, must not be left behind. */
export async function closeAll(closers: Closers): Promise<void> {
  const failures: unknown[] = [];
  for (const close of closers.splice(0).reverse()) {
    try {
      await close();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

/** The wakeup that events were appended. */
export const EVENTS_WAKEUP = "events";
/** Prefix of wakeups about the board. */
export const BOARD_WAKEUP = "board:";

/** Opens the clock, randomness, ids, log and telemetry of a process. `spans` keeps the last spans for operators. */
export async function openContext(
  { config, log, clock = systemClock, random = Math.random, newId }: KhalaOptions,
  spans?: SpanRing,
): Promise<Context> {
  const { OTEL_EXPORTER_OTLP_ENDPOINT: otlpEndpoint, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES } = config;
  const telemetry = await openTelemetry({
    resource: { "service.version": VERSION, ...readResource(OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) },
    ...(otlpEndpoint && { otlpEndpoint }),
    ...(spans && { spanProcessor: spans }),
  });
  return {
    clock,
    random,
    newId: newId ?? uuidv7(clock),
    log: log ?? pino({ level: config.KHALA_LOG_LEVEL }),
    telemetry,
    quotas: openQuotas(telemetry.meter),
  };
}

/** The database that the settings name, or the embedded one, with its schema. */
export async function openServerDatabase(
  config: Config,
  context: Context,
  closers: Closers,
): Promise<Database> {
  const database = await connectDatabase(config, context, closers);
  await migrate(database, context.log);
  return database;
}

/** The same, with the schema that it has. */
export async function connectDatabase(config: Config, context: Context, closers: Closers): Promise<Database> {
  let url = config.DATABASE_URL;
  if (!url) {
    const { KHALA_DATA_DIR: dataDir } = config;
    closers.push(lockDataFolder(dataDir));
    const server = await startEmbeddedPostgres({
      dataDir: join(dataDir, "postgres"),
      clock: context.clock,
      newPassword: () => randomBytes(24).toString("base64url"),
      restartLog: context.log,
    });
    closers.push(() => server.stop());
    url = server.url;
  }
  const database = openDatabase({ url, poolSize: config.KHALA_DATABASE_POOL, log: context.log });
  closers.push(() => database.close());
  return database;
}
