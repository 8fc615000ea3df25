import { KhalaError } from "@khala/contracts";
import { type Logger, pino } from "pino";
import type { App } from "../../app.ts";
import { type Database, openDatabase } from "../../database/database.ts";
import { grantServing, migrate } from "../../database/migrate.ts";
import { openWakeups } from "../../database/wakeups.ts";
import { openIssuer } from "../../gateway/auth/auth.ts";
import type { MintedToken, MintRequest } from "../../gateway/auth/issuer.ts";
import { systemClock } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { uuidv7 } from "../../kit/ids.ts";
import { openQuotas } from "../../kit/quota.ts";
import { openTelemetry } from "../../kit/telemetry.ts";
import { type ConvexMirrorOptions, convexMirror } from "../../sync/mirror/mirror_convex.ts";
import { compareWithMirror, type ParityReport } from "../../sync/mirror/parity.ts";
import type { Model } from "../../sync/model.ts";
import { createReadModels } from "../../sync/read/read_models.ts";
import { rotateEpoch as beginEpoch, recordStart } from "../../sync/read/starts.ts";
import { type ReprojectionProgress, reproject as rebuild } from "../../sync/rebuild/reprojection.ts";
import { trimTopic } from "../../sync/rebuild/retention.ts";
import type { Config } from "../config.ts";
import { authSettings } from "../settings.ts";
import {
  type CopiedConversations,
  copyConversations,
  type TrimmedConversations,
  trimConversations,
} from "./conversations.ts";

export { embeddedBinaries } from "../../database/embedded.ts";
export { inspectSchema, SCHEMA_VERSION } from "../../database/migrate.ts";
export { findPooling, NEEDS_SESSIONS, type Pooling } from "../../database/pooler.ts";
export { findReadOnly, type ReadOnly } from "../../database/read_only.ts";
export { checkKeyFile } from "../../gateway/auth/auth.ts";
export type { MintedToken, MintRequest } from "../../gateway/auth/issuer.ts";
export type { ConvexMirrorOptions } from "../../sync/mirror/mirror_convex.ts";
export {
  type DocumentDifference,
  type DocumentMark,
  type Findings,
  type Lag,
  type ParityReport,
  parityLines,
  type TopicParity,
} from "../../sync/mirror/parity.ts";
export type { ReprojectionProgress } from "../../sync/rebuild/reprojection.ts";
export { probeKafka, probeRedis } from "./backend_probes.ts";
export {
  type BackupContents,
  type BackupOptions,
  type BackupProgress,
  createBackup,
  type RestoreBackupOptions,
  restoreBackup,
  verifyBackup,
} from "./backup.ts";
export type { CopiedConversations, TrimmedConversations } from "./conversations.ts";

/** Signs a token with the keys that these settings name, or with the development key; undefined if they cannot sign. */
export async function mintToken(
  config: Config,
  dev: boolean,
  request: MintRequest,
): Promise<MintedToken | undefined> {
  const newId = uuidv7(systemClock);
  return openIssuer(authSettings(config, dev), { clock: systemClock, newId })?.mint(request);
}

/** The database to work on. Servers may keep running on it. */
export interface OperationOptions {
  readonly databaseUrl: string;
  readonly log?: Logger;
  readonly signal?: AbortSignal;
}

export interface ReprojectOptions extends OperationOptions {
  readonly app: App;
  readonly topic: string;
  /** As KHALA_PAYLOAD_MODE of the servers: whether the journal stores payloads. Default: it does. */
  readonly inline?: boolean;
  /** Starts again instead of resuming an interrupted one. */
  readonly restart?: boolean;
  readonly onProgress?: (progress: ReprojectionProgress) => void;
}

/** Rebuilds a read model from the log with the app's code of today, and re-emits the documents that differ. */
export async function reproject(options: ReprojectOptions): Promise<ReprojectionProgress> {
  const { app, topic, inline = true, restart = false, signal, onProgress } = options;
  const model = modelOf(app, topic);
  return withDatabase(options, async (database, context) => {
    const wakeups = openWakeups(database, context, { enabled: true });
    try {
      // It writes, as a server does, and the database may have been restored.
      await database.interactive((tx) => recordStart(tx, context));
      return await rebuild(database, context, model, {
        inline,
        restart,
        onCommit: (changed) => wakeups.send(changed),
        ...(signal && { signal }),
        ...(onProgress && { onProgress }),
      });
    } finally {
      await wakeups.stop();
    }
  });
}

export interface ParityCheckOptions extends OperationOptions {
  readonly app: App;
  /** Default: every topic of the app. */
  readonly topics?: readonly string[];
  readonly convex: ConvexMirrorOptions;
  readonly onProgress?: (progress: { topic: string; documents: number }) => void;
}

/** Compares version, hash and lag of every document between Postgres and the mirror. */
export async function parity(options: ParityCheckOptions): Promise<ParityReport> {
  const { app, topics, convex, signal = new AbortController().signal, onProgress } = options;
  const models = topics?.map((topic) => modelOf(app, topic)) ?? app.models.all;
  return withDatabase(options, async (database) => {
    const reader = await convexMirror(convex);
    return compareWithMirror(database, { reader, models, signal, ...(onProgress && { onProgress }) });
  });
}

export interface TrimOptions extends OperationOptions {
  readonly app: App;
  /** Journal rows that are older are removed. */
  readonly keepMs: number;
  readonly onProgress?: (progress: { topic: string; removed: number }) => void;
}

/** Trims the journals now, in bounded steps. Returns how many rows each topic lost. */
export async function trimNow(options: TrimOptions): Promise<ReadonlyMap<string, number>> {
  const { app, keepMs, signal, onProgress } = options;
  return withDatabase(options, async (database) => {
    const removed = new Map<string, number>();
    for (const model of app.models.all) {
      let total = 0;
      for (let batch = -1; batch !== 0; ) {
        signal?.throwIfAborted();
        batch = await trimTopic(database, model, keepMs);
        total += batch;
        if (batch > 0) onProgress?.({ topic: model.topic, removed: total });
      }
      removed.set(model.topic, total);
    }
    return removed;
  });
}

export interface TrimConversationsOptions extends OperationOptions {
  readonly config: Config;
  readonly onProgress?: (progress: TrimmedConversations) => void;
}

/** Trims and removes conversations now, as the settings say. */
export async function trimConversationsNow(options: TrimConversationsOptions): Promise<TrimmedConversations> {
  const { config, signal, onProgress } = options;
  return withDatabase(options, (database, context) =>
    trimConversations(config, database, context, signal, onProgress),
  );
}

export interface CopyConversationsOptions extends OperationOptions {
  /** Its REDIS_URL is where they go. */
  readonly config: Config;
  readonly onProgress?: (progress: CopiedConversations) => void;
}

/** Copies all conversations from Postgres to Redis, positions included. */
export async function copyConversationsNow(options: CopyConversationsOptions): Promise<CopiedConversations> {
  const { config, signal, onProgress } = options;
  return withDatabase(options, (database, context) =>
    copyConversations(config, database, context, signal, onProgress),
  );
}

/** Begins a new epoch, after a restore that Khala cannot detect: every cursor is stale, and clients list again. */
export async function rotateEpoch(options: OperationOptions): Promise<string> {
  return withDatabase(options, beginEpoch);
}

export interface MigrateOptions extends OperationOptions {
  readonly app: App;
  /** A role that may serve from now on, without the right to change the schema. */
  readonly grantTo?: string;
}

/** Creates or updates the schema and the tables of the app's models, as a starting server does. */
export async function migrateNow(options: MigrateOptions): Promise<void> {
  const { app, grantTo } = options;
  return withDatabase(options, async (database, { log }) => {
    await migrate(database, log);
    await createReadModels(database, app.models.all);
    if (grantTo !== undefined) await grantServing(database, grantTo);
  });
}

function modelOf(app: App, topic: string): Model {
  const model = app.models.byTopic(topic);
  if (model) return model;
  const known = app.models.all.map((each) => each.topic).join(", ");
  throw new KhalaError("not_found", `There is no topic "${topic}". Topics of this app: ${known}.`, {
    field: "topic",
  });
}

async function withDatabase<T>(
  { databaseUrl, log = pino({ level: "silent" }) }: OperationOptions,
  work: (database: Database, context: Context) => Promise<T>,
): Promise<T> {
  const telemetry = await openTelemetry();
  const quotas = openQuotas(telemetry.meter);
  const newId = uuidv7(systemClock);
  const context = { clock: systemClock, random: Math.random, newId, log, telemetry, quotas };
  const database = openDatabase({ url: databaseUrl, poolSize: 4, log });
  try {
    return await work(database, context);
  } catch (error) {
    const { code } = error as { code?: string };
    // undefined_table, undefined_column, undefined_function, invalid_schema_name
    if (code !== "42P01" && code !== "42703" && code !== "42883" && code !== "3F000") throw error;
    const message =
      "This database does not have the schema of this Khala version. Run `khala migrate`, then try again.";
    throw new KhalaError("unavailable", message, {}, { cause: error });
  } finally {
    await database.close();
    await telemetry.shutdown();
  }
}
