import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { type BackupContents, type BackupProgress, backUp } from "../../database/backup/backup.ts";
import { checkBackup, restore, verifyBackup as verify } from "../../database/backup/restore.ts";
import { DataFolderInUse } from "../../database/data_folder.ts";
import type { Database } from "../../database/database.ts";
import { migrate } from "../../database/migrate.ts";
import type { Context } from "../../kit/context.ts";
import { rotateEpochWithin } from "../../sync/read/starts.ts";
import type { Config } from "../config.ts";
import { type Closers, closeAll, connectDatabase, openContext, VERSION } from "../startup.ts";

export type { BackupContents, BackupProgress };

export interface BackupOptions {
  /** Names the database: DATABASE_URL, or the data folder of the embedded one, which is started if no server has it. */
  readonly config: Config;
  readonly file: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: BackupProgress) => void;
}

/** Writes the schema `runtime` into a file, as of one moment, and reads the file back. Servers may keep running. */
export async function createBackup(options: BackupOptions): Promise<BackupContents> {
  const { config, file } = options;
  const progress = withDefaults(options);
  const cluster = join(config.KHALA_DATA_DIR, "postgres", "pg");
  if (!config.DATABASE_URL && !existsSync(cluster))
    throw new Error(`There is no database in ${config.KHALA_DATA_DIR}. Set DATABASE_URL or KHALA_DATA_DIR.`);
  await withOwnDatabase(config, async (database, { clock }) => {
    const client = await database.connect();
    try {
      await backUp(client, { file, khala: VERSION, now: new Date(clock.now()), ...progress });
    } finally {
      await client.end();
    }
  });
  return verify({ file, ...progress });
}

/** Reads a backup to its end, and checks its checksum and its number of rows. */
export function verifyBackup(options: Omit<BackupOptions, "config">): Promise<BackupContents> {
  return verify({ file: options.file, ...withDefaults(options) });
}

export interface RestoreBackupOptions extends BackupOptions {
  /** Deletes what the database has. Without it, one that has anything is refused. */
  readonly replace?: boolean;
}

/** Puts a backup into the database, in one transaction, and begins a new epoch. No server may run on it. */
export async function restoreBackup(
  options: RestoreBackupOptions,
): Promise<BackupContents & { readonly epoch: string }> {
  const { config, file, replace = false } = options;
  await checkBackup(file);
  // First, so that damage is reported as such, and not as a row that PostgreSQL refuses.
  await verifyBackup(options);
  return withOwnDatabase(
    config,
    async (database, context) => {
      await migrate(database, context.log);
      const client = await database.connect();
      let epoch = "";
      try {
        const contents = await restore(client, {
          file,
          replace,
          ...withDefaults(options),
          onRestored: async (tx) => {
            epoch = await rotateEpochWithin(tx, context);
          },
        });
        return { ...contents, epoch };
      } finally {
        // Ending the session rolls an unfinished transaction back.
        await client.end();
      }
    },
    false,
  );
}

function withDefaults({ signal, onProgress }: Omit<BackupOptions, "config" | "file">) {
  return { signal: signal ?? new AbortController().signal, onProgress: onProgress ?? (() => {}) };
}

/** Opens the database that the settings name. The embedded one may run already, in a server that `shared` allows. */
async function withOwnDatabase<T>(
  config: Config,
  work: (database: Database, context: Context) => Promise<T>,
  shared = true,
): Promise<T> {
  const closers: Closers = [];
  try {
    const context = await openContext({ config, log: pino({ level: "silent" }) });
    closers.push(() => context.telemetry.shutdown());
    const database = await connectDatabase(config, context, closers).catch((error) => {
      if (!shared || !(error instanceof DataFolderInUse)) throw error;
      const url = readFileSync(join(config.KHALA_DATA_DIR, "postgres", "database_url"), "utf8").trim();
      return connectDatabase({ ...config, DATABASE_URL: url }, context, closers);
    });
    return await work(database, context);
  } finally {
    await closeAll(closers);
  }
}
