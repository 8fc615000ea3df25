import { isCursor, isDocument, OutdatedChange, oneAtATime, parseJson } from "./driver_support.ts";
import type { Cursor, Storage, StoredDocument, StoredTopic, TopicChange } from "./storage.ts";

type Value = string | number | null;
type Changes = { readonly changes: number | bigint };

/** `DatabaseSync` of node:sqlite, or better-sqlite3, as far as it is used. */
export interface SqliteSync {
  exec(sql: string): unknown;
  prepare(sql: string): { run(...values: Value[]): Changes; all(...values: Value[]): unknown[] };
}

/** expo-sqlite's database, as far as it is used. */
export interface SqliteAsync {
  execAsync(sql: string): Promise<void>;
  runAsync(sql: string, values: Value[]): Promise<Changes>;
  getAllAsync(sql: string, values: Value[]): Promise<unknown[]>;
  withTransactionAsync(task: () => Promise<void>): Promise<void>;
}

/** With `must`, a step that changes nothing is a failure. */
type Step = readonly [sql: string, values: Value[], must?: "change"];

/** The common interface. The steps of a call run in one transaction, and nothing of the app runs between them. */
interface Sql {
  exec(sql: string): Promise<void>;
  write(steps: readonly Step[]): Promise<void>;
  read(steps: readonly Step[]): Promise<unknown[][]>;
}

/** The table names carry the version, because `user_version` belongs to the app. */
const SCHEMA = `
CREATE TABLE IF NOT EXISTS khala_cursors_1 (
  scope TEXT NOT NULL, topic TEXT NOT NULL, epoch TEXT NOT NULL, watermark TEXT NOT NULL,
  PRIMARY KEY (scope, topic)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS khala_documents_1 (
  scope TEXT NOT NULL, topic TEXT NOT NULL, doc_key TEXT NOT NULL, version TEXT NOT NULL, hash TEXT NOT NULL,
  updated_at TEXT, payload TEXT, deleted INTEGER NOT NULL,
  PRIMARY KEY (scope, topic, doc_key)
);`;

const CURSOR = "SELECT epoch, watermark FROM khala_cursors_1 WHERE scope = ? AND topic = ?";

const DOCUMENTS = `
SELECT doc_key, version, hash, updated_at, payload, deleted FROM khala_documents_1 WHERE scope = ? AND topic = ? ORDER BY doc_key`;

const MOVE_CURSOR = `
UPDATE khala_cursors_1 SET epoch = ?, watermark = ? WHERE scope = ? AND topic = ? AND epoch = ? AND watermark = ?`;

const SET_CURSOR =
  "INSERT OR REPLACE INTO khala_cursors_1 (scope, topic, epoch, watermark) VALUES (?, ?, ?, ?)";

/** Many documents in one call: on a phone each call crosses a bridge. */
const PUT = `
INSERT OR REPLACE INTO khala_documents_1 (scope, topic, doc_key, version, hash, updated_at, payload, deleted)
SELECT ?, ?, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
  json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]')
FROM json_each(?)`;

const EMPTY = "DELETE FROM khala_documents_1 WHERE scope = ? AND topic = ?";

const REMOVE = `
DELETE FROM khala_documents_1 WHERE scope = ? AND topic = ? AND doc_key IN (SELECT value FROM json_each(?))`;

const AT_ONCE = 500;

/** Stores documents in the app's SQLite database: node:sqlite, better-sqlite3 or expo-sqlite. The app closes it. */
export function sqlite(database: SqliteSync | SqliteAsync): Storage {
  const sql = "prepare" in database ? synchronous(database) : asynchronous(database);
  const run = oneAtATime("SQLite");
  let ready: Promise<void> | undefined;

  const work = <T>(task: () => Promise<T>) =>
    run(async () => {
      ready ??= sql.exec(SCHEMA);
      await ready.catch((error: unknown) => {
        ready = undefined;
        throw error;
      });
      return task();
    });

  async function commit(scope: string, topic: string, change: TopicChange): Promise<void> {
    const { after, put, remove, cursor } = change;
    const rows = put.map(rowOf);
    await sql.write([
      moveCursor(scope, topic, after, cursor),
      ...(after ? [] : [[EMPTY, [scope, topic]] as Step]),
      ...chunks(remove).map((keys): Step => [REMOVE, [scope, topic, JSON.stringify(keys)]]),
      ...chunks(rows).map((some): Step => [PUT, [scope, topic, JSON.stringify(some)]]),
    ]);
  }

  async function load(scope: string, topic: string): Promise<StoredTopic | undefined> {
    const [cursors, rows] = await sql.read([
      [CURSOR, [scope, topic]],
      [DOCUMENTS, [scope, topic]],
    ]);
    const cursor = cursors?.[0];
    const documents = rows?.map(documentOf) ?? [];
    if (!isCursor(cursor) || !documents.every(isDocument)) return undefined;
    return { documents, cursor: { epoch: cursor.epoch, watermark: cursor.watermark } };
  }

  async function clear(...prefix: string[]): Promise<void> {
    const where = ["WHERE true", "scope = ?", "topic = ?"].slice(0, prefix.length + 1).join(" AND ");
    const tables = ["khala_cursors_1", "khala_documents_1"];
    await sql.write(tables.map((table) => [`DELETE FROM ${table} ${where}`, prefix]));
  }

  return {
    load: (scope, topic) => work(() => load(scope, topic)),
    commit: (scope, topic, change) => work(() => commit(scope, topic, change)),
    clear: (scope, topic) => work(() => clear(...[scope, topic].filter((part) => part !== undefined))),
    close: () => run(async () => {}),
  };
}

/** Moves the cursor on from where the change begins, or sets it with a whole topic. */
function moveCursor(scope: string, topic: string, from: Cursor | undefined, to: Cursor): Step {
  if (!from) return [SET_CURSOR, [scope, topic, to.epoch, to.watermark]];
  return [MOVE_CURSOR, [to.epoch, to.watermark, scope, topic, from.epoch, from.watermark], "change"];
}

/** The payload is JSON inside JSON, so that strings, numbers and null are restored exactly. */
function rowOf({ key, version, hash, updatedAt, payload, deleted }: StoredDocument) {
  const text = payload === undefined ? null : JSON.stringify(payload);
  return [key, version, hash, updatedAt ?? null, text, deleted ? 1 : 0];
}

/** Undefined when the row is not a document. */
function documentOf(row: unknown): StoredDocument | undefined {
  const { doc_key, version, hash, updated_at, payload, deleted } = row as Record<string, Value>;
  const json = parseJson(payload);
  if (payload !== null && json === undefined) return undefined;
  const document = {
    key: doc_key,
    version,
    hash,
    ...(updated_at !== null && { updatedAt: updated_at }),
    ...(payload !== null && { payload: json }),
    ...(deleted === 1 && { deleted: true }),
  };
  return isDocument(document) ? document : undefined;
}

function chunks<T>(all: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(all.length / AT_ONCE) }, (_, i) =>
    all.slice(i * AT_ONCE, (i + 1) * AT_ONCE),
  );
}

function synchronous(database: SqliteSync): Sql {
  const statements = new Map<string, ReturnType<SqliteSync["prepare"]>>();
  const prepared = (sql: string) => {
    const statement = statements.get(sql) ?? database.prepare(sql);
    statements.set(sql, statement);
    return statement;
  };
  const together = <T>(begin: string, task: () => T): T => {
    database.exec(begin);
    try {
      const result = task();
      database.exec("COMMIT");
      return result;
    } catch (error) {
      undo(database);
      throw error;
    }
  };
  return {
    async exec(sql) {
      database.exec(sql);
    },
    async write(steps) {
      together("BEGIN IMMEDIATE", () => {
        for (const [sql, values, must] of steps) check(prepared(sql).run(...values), must);
      });
    },
    read: async (steps) =>
      together("BEGIN", () => steps.map(([sql, values]) => prepared(sql).all(...values))),
  };
}

function check({ changes }: Changes, must: Step[2]): void {
  if (must === "change" && Number(changes) === 0) throw new OutdatedChange();
}

/** Rolls back. After some failures, such as a full disk, SQLite has already done so, and throws. */
function undo(database: SqliteSync): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // The caller throws the original error.
  }
}

function asynchronous(database: SqliteAsync): Sql {
  return {
    exec: (sql) => database.execAsync(sql),
    write: (steps) =>
      database.withTransactionAsync(async () => {
        for (const [sql, values, must] of steps) check(await database.runAsync(sql, values), must);
      }),
    async read(steps) {
      const results: unknown[][] = [];
      await database.withTransactionAsync(async () => {
        for (const [sql, values] of steps) results.push(await database.getAllAsync(sql, values));
      });
      return results;
    },
  };
}
