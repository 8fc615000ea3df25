import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";

/** Distinguishes a database from a restored or replaced one. Null where the role lacks the privilege. */
interface Marks {
  readonly system: string | null;
  readonly timeline: string | null;
  readonly database: string;
  readonly table: string;
  readonly cluster: string | null;
}

/**
 * The epoch of all cursors. If the database is not the one that the epoch was made for (a restored dump, a promoted
 * standby, a data folder copied back), a new epoch begins and every cursor from before is stale.
 */
export async function settleEpoch(database: Database, context: Context): Promise<string> {
  const marks = await readMarks(database);
  return database.interactive(async (tx) => {
    await tx.query({ text: "SELECT pg_advisory_xact_lock(7240115)" });
    const [row] = await tx.query<{ epoch: string; marks: Marks }>({
      text: "SELECT epoch, marks FROM runtime.sync_epoch FOR UPDATE",
    });
    if (row && sameDatabase(row.marks, marks)) return row.epoch;
    const epoch = context.newId();
    await tx.query(storeEpoch(epoch, marks));
    if (row)
      context.log.warn(
        { before: row.epoch, epoch },
        "this database was restored or replaced: a new epoch begins, clients list anew",
      );
    return epoch;
  });
}

/** Starts a new epoch manually: for a restore that cannot be detected, such as a volume snapshot. */
export async function rotateEpoch(database: Database, context: Context): Promise<string> {
  const epoch = context.newId();
  const marks = await readMarks(database);
  await database.query(storeEpoch(epoch, marks));
  return epoch;
}

function storeEpoch(epoch: string, marks: Marks): Statement {
  return {
    text: `INSERT INTO runtime.sync_epoch (epoch, marks) VALUES ($1, $2)
      ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, marks = excluded.marks, since = now()`,
    values: [epoch, JSON.stringify(marks)],
  };
}

function sameDatabase(a: Marks, b: Marks): boolean {
  const keys: (keyof Marks)[] = ["system", "timeline", "database", "table", "cluster"];
  // A value that could not be read cannot be compared.
  return keys.every((key) => a[key] === null || b[key] === null || a[key] === b[key]);
}

async function readMarks(database: Database): Promise<Marks> {
  const [base] = await database.query<{ database: string; table: string }>({
    text: `SELECT (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database,
      'runtime.sync_topic_sequences'::regclass::oid::text AS "table"`,
  });
  const system = await ask(database, "SELECT system_identifier::text AS mark FROM pg_control_system()");
  const timeline = await ask(
    database,
    "SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) AS mark",
  );
  // Copying a data folder back gives its files a new change time, whatever else it preserves.
  const cluster = await ask(
    database,
    "SELECT extract(epoch FROM change)::text AS mark FROM pg_stat_file('PG_VERSION')",
  );
  return {
    ...base!,
    system: system as string | null,
    timeline: timeline as string | null,
    cluster: cluster as string | null,
  };
}

async function ask(database: Database, text: string): Promise<unknown> {
  try {
    const [row] = await database.query<{ mark: unknown }>({ text });
    return row?.mark ?? null;
  } catch (error) {
    if ((error as { code?: string }).code === "42501") return null; // insufficient_privilege: managed servers forbid it
    throw error;
  }
}
