import type { JsonObject } from "@bufbuild/protobuf";
import { KhalaError, SCOPES } from "@khala/contracts";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import type { FileStore } from "../conversations/files/file_store.ts";
import { type Files, openFiles } from "../conversations/files/files.ts";
import { openPostgresFileStore } from "../conversations/files/postgres_file_store.ts";
import { startJanitor } from "../conversations/janitor.ts";
import type { Log } from "../conversations/log/log.ts";
import { openPostgresLog, type PostgresLog } from "../conversations/log/postgres/postgres_log.ts";
import { sweepLog } from "../conversations/log/postgres/sweep.ts";
import { openRedisLog } from "../conversations/log/redis/redis_log.ts";
import type { ConversationMetrics } from "../conversations/metrics.ts";
import type { ConversationOptions, RunEvents } from "../conversations/options.ts";
import type { Database } from "../database/database.ts";
import { holdLease } from "../database/lease.ts";
import type { StoredBytes } from "../database/stored_bytes.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { Authority } from "../events/authority.ts";
import { runs } from "../events/streams.ts";
import type { Clock } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { loadOptional } from "../kit/optional_package.ts";
import { runLoop, Wake } from "../kit/service.ts";
import type { Config } from "./config.ts";
import { conversationSettings } from "./settings.ts";

const JANITOR_LEASE_MS = 10_000;
const SWEPT_AT_ONCE = 500;
const S3_DRIVER = "@khala/s3";

/** The log of conversations: Redis where the settings name one, else Postgres. */
export async function openChatLog(
  config: Config,
  database: Database,
  context: Context,
  wakeups: Pick<Wakeups, "send">,
): Promise<PostgresLog> {
  const { ttlMs } = conversationSettings(config);
  if (!config.REDIS_URL) return openPostgresLog(database, context, { ttlMs, wakeups });
  const log = await openRedisLog(context, { url: config.REDIS_URL, ttlMs });
  // Redis pushes news itself.
  return { ...log, onWakeup() {}, recheck() {} };
}

/** The files of conversations. */
export async function openChatFiles(
  config: Config,
  database: Database,
  context: Context,
  stored?: StoredBytes,
): Promise<Files> {
  const postgres = openPostgresFileStore(database);
  const bucket = await openBucket(config, context);
  return openFiles(database, context, {
    store: bucket ?? postgres,
    before: postgres,
    maxBytes: config.KHALA_FILE_MAX_BYTES,
    stored,
  });
}

/** Starts the janitor of conversations, on one server at a time; the answer stops it. */
export function startConversationCleanup(
  config: Config,
  database: Database,
  log: Log,
  context: Context,
  { metrics, files }: { readonly metrics: ConversationMetrics; readonly files: Files },
): () => Promise<void> {
  const { retention, keepMs, janitorEveryMs: everyMs } = conversationSettings(config);
  const lease = holdLease(database, context, "conversations", JANITOR_LEASE_MS, () => {});
  const active = () => lease.held();
  const janitor = startJanitor(database, log, context, {
    retention,
    keepMs,
    everyMs,
    metrics,
    files,
    active,
  });
  // In Redis keys go away by themselves.
  const sweeping = runLoop(context, "log sweep", {
    wake: new Wake(),
    idleMs: everyMs,
    step: async () => !config.REDIS_URL && active() && (await sweepLog(database, SWEPT_AT_ONCE)).more,
  });
  return async () => {
    await Promise.all([janitor.stop(), sweeping.stop()]);
    await lease.stop();
  };
}

const PUBLISHES: ReadonlySet<string> = new Set([SCOPES.blackboardWrite]);

/** Publishes the artifacts of engines in the name of the run's owner. */
export function publishForRuns(board: Pick<BlackboardPlane, "publish">): ConversationOptions["publish"] {
  return ({ org, subject, trace, conversation }, drafts) =>
    board.publish({ org, subject, scopes: PUBLISHES, conversation, ...(trace && { trace }) }, drafts);
}

/** Runs of conversations leave the events that all runs leave, and are for their owner's eyes. */
export function runEvents(authority: Authority): RunEvents {
  return {
    async append({ runId, org, subject, trace }, type, data) {
      const given = type === "run.started" ? { ...data, audience: [subject] } : data;
      const event = { event_id: `${runId}:${type}`, type, data: given as JsonObject };
      try {
        await authority.append({
          stream: runs,
          streamId: runId,
          events: [event],
          org,
          actor: subject,
          ...(trace && { trace }),
        });
      } catch (error) {
        // Two servers may report the same end of a run in different words: the first one counts.
        if (!(error instanceof KhalaError && error.code === "event_conflict")) throw error;
      }
    },
  };
}

/** The part of the S3 driver that is used here. It is a separate package, so that only those who name a bucket install it. */
interface S3Driver {
  openS3FileStore(options: {
    readonly url: string;
    readonly region: string;
    readonly accessKeyId: string;
    readonly secretAccessKey: string;
    readonly clock: Clock;
  }): FileStore;
}

/** The bucket of files that the settings name, if any. */
async function openBucket(config: Config, { clock }: Context): Promise<FileStore | undefined> {
  const { KHALA_FILES_S3_URL: url, KHALA_FILES_S3_REGION: region } = config;
  if (!url) return undefined;
  const { openS3FileStore } = await loadOptional(
    S3_DRIVER,
    "KHALA_FILES_S3_URL",
    () => import(S3_DRIVER) as Promise<S3Driver>,
  );
  const accessKeyId = config.KHALA_FILES_S3_ACCESS_KEY ?? "";
  const secretAccessKey = config.KHALA_FILES_S3_SECRET_KEY ?? "";
  return openS3FileStore({ url, region, accessKeyId, secretAccessKey, clock });
}
