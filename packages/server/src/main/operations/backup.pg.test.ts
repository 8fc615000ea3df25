import { randomBytes, randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Database, openDatabase } from "../../database/database.ts";
import { readConfig } from "../config.ts";
import { createBackup, restoreBackup, verifyBackup } from "./backup.ts";

let folder: string;
let file: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-backup-"));
  file = join(folder, "khala.backup");
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const configOf = ({ url }: TestDatabase) => readConfig({ DATABASE_URL: url });

/** A pool on the database that is closed at the end: no session is left that would look like a server's. */
async function within<T>({ url }: TestDatabase, work: (database: Database) => Promise<T>): Promise<T> {
  const database = openDatabase({
    url,
    poolSize: 1,
    log: pino({ level: "silent" }),
    connectTimeoutMs: 60_000,
  });
  try {
    return await work(database);
  } finally {
    await database.close();
  }
}

/** Values that a careless format would change. */
const AWKWARD = ["\\N", "\\.", "tab\tnew\nline\r", 'quote"\\', "", "ü 🦦 \u2028"];

async function fill(database: Database): Promise<void> {
  for (const [i, text] of AWKWARD.entries())
    await database.query({
      text: `INSERT INTO runtime.durable_streams (org_id, path, owner, content_type, closed_by) VALUES ('acme', $1, $2, $2, $3)`,
      values: [`p${i}`, text, i % 2 ? text : null],
    });
  await database.query({
    text: "INSERT INTO runtime.durable_stream_chunks SELECT 1, n, $1, n FROM generate_series(1, 20) n",
    values: [randomBytes(100_000)],
  });
  // Rows that refer to rows that refer to rows.
  await database.query({
    text: `WITH c AS (INSERT INTO runtime.conversations (org_id, conv_id, log_name, owner) VALUES ('acme', 'c1', 'chat:c1', 'ada')),
        f AS (INSERT INTO runtime.files (org_id, file_id, conv_id, name, media_type, size, stored_at)
          VALUES ('acme', 'f1', 'c1', 'a.txt', 'text/plain', 2, now()))
      INSERT INTO runtime.file_chunks VALUES ('acme', 'f1', 0, 'hi')`,
  });
  await database.query({
    text: `INSERT INTO runtime.audit_log (org_id, subject, action, resource, address, at)
      SELECT 'acme', 's', 'a', n::text, '', '2026-01-02 03:04:05.678901+00' FROM generate_series(1, 3000) n`,
  });
}

/**
 * Every row of every table but leases and starts, and the next number of each sequence. Without the columns that the next
 * start of a server generates for its models.
 */
async function contents(database: Database): Promise<unknown> {
  const generated = await database.query<{ name: string }>({
    text: `SELECT DISTINCT attname::text AS name FROM pg_attribute WHERE attgenerated <> '' AND attname ~ '^[of]_'
      AND attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'runtime'::regnamespace)`,
  });
  const left = generated.map(({ name }) => name);
  const tables = await database.query<{ name: string }>({
    text: `SELECT relname::text AS name FROM pg_class WHERE relnamespace = 'runtime'::regnamespace AND relkind = 'r'
      AND relname NOT IN ('leases', 'sync_starts', 'schema_migrations', 'schema_files') ORDER BY 1`,
  });
  const rows: Record<string, unknown> = {};
  for (const { name } of tables)
    rows[name] = await database.query({
      text: `SELECT count(*), md5(coalesce(string_agg(v, '\n' ORDER BY v), '')) FROM (
        SELECT (to_jsonb(t) - $1::text[])::text AS v FROM runtime.${name} t) rows`,
      values: [left],
    });
  const [sequences] = await database.query({
    text: "SELECT a.last_value AS a, s.last_value AS s FROM runtime.audit_log_id_seq a, runtime.durable_streams_id_seq s",
  });
  return { rows, sequences };
}

test("a backup of a running server has every row, and restores into an empty database", async () => {
  await using source = await testDatabase();
  await using target = await testDatabase({ empty: true });
  await using server = await startServer(source.url);
  await server.write({ key: "run:1", version: 1, org: "acme", payload: { text: "ü" } });
  await fill(source.database);
  const made = await createBackup({ config: configOf(source), file });
  expect(made.rows).toBeGreaterThan(3_000);
  expect(await verifyBackup({ file })).toEqual(made);
  await server[Symbol.asyncDispose]();

  const { epoch, ...restored } = await restoreBackup({ config: configOf(target), file });
  expect(restored).toEqual(made);
  expect(await target.database.query({ text: "SELECT epoch FROM runtime.sync_epoch" })).toEqual([{ epoch }]);
  const { rows } = (await contents(target.database)) as { rows: object };
  expect({ rows }).toEqual({ rows: ((await contents(source.database)) as { rows: object }).rows });
  // Sequences continue where they were.
  await fill(target.database).catch(({ constraint }) =>
    expect(constraint).toBe("durable_streams_org_id_path_key"),
  );
  const next =
    "INSERT INTO runtime.audit_log (org_id, subject, action, resource, address) VALUES ('', '', '', '', '') RETURNING id";
  const [here] = await source.database.query({ text: next });
  expect(await target.database.query({ text: next })).toEqual([here]);
});

test("rows written during the backup are either all in it or none", async () => {
  await using source = await testDatabase();
  await using target = await testDatabase({ empty: true });
  await fill(source.database);
  let written: Promise<unknown> | undefined;
  await createBackup({
    config: configOf(source),
    file,
    onProgress: () => {
      written ??= source.database.query({
        text: `WITH a AS (INSERT INTO runtime.audit_log (org_id, subject, action, resource, address) VALUES ('late', '', '', '', '')),
          d AS (INSERT INTO runtime.durable_streams (org_id, path, owner, content_type) VALUES ('late', '', '', ''))
          INSERT INTO runtime.revocations VALUES ('late', '', '', now(), now())`,
      });
    },
  });
  await written;
  await restoreBackup({ config: configOf(target), file });
  for (const table of ["audit_log", "durable_streams", "revocations"])
    expect(
      await target.database.query({ text: `SELECT FROM runtime.${table} WHERE org_id = 'late'` }),
    ).toEqual([]);
});

test("refuses to restore into a database with data, and replaces it on request", async () => {
  await using own = await testDatabase({ empty: true });
  const config = configOf(own);
  await using first = await startServer(own.url);
  await first.write({ key: "run:1", version: 1, org: "acme", payload: { text: "before" } });
  await createBackup({ config, file });
  await first.write({ key: "run:2", version: 1, org: "acme", payload: { text: "lost" } });
  await first[Symbol.asyncDispose]();
  await expect(restoreBackup({ config, file })).rejects.toThrow(/The database already has data .*--replace/);

  await restoreBackup({ config, file, replace: true });
  await using second = await startServer(own.url);
  expect(await keys(second)).toEqual(["run:1"]);
});

async function keys(server: TestServer): Promise<string[]> {
  const token = await server.token({ org_id: "acme" });
  const response = await server.request("/sync/v1/list/runtime.run_summaries", token);
  return ((await response.json()) as { documents: { doc_key: string }[] }).documents.map(
    (each) => each.doc_key,
  );
}

test("refuses a database in use, with the sessions, or the lease of a killed server", async () => {
  await using own = await testDatabase();
  const config = configOf(own);
  await createBackup({ config, file });
  await within(own, async (database) => {
    await database.query({
      text: "INSERT INTO runtime.leases VALUES ('sync', 'me', now() + interval '1 hour')",
    });
    await expect(restoreBackup({ config, file, replace: true })).rejects.toThrow(
      /^Servers use this database: PostgreSQL's processes \d+ \(.*Stop all servers.*RECONNECT/,
    );
  });
  await expect(restoreBackup({ config, file, replace: true })).rejects.toThrow(
    /the lease "sync" is held for \d+ s more/,
  );
});

test("refuses a backup of another schema or format, and any other file, and says what to do", async () => {
  await using own = await testDatabase({ empty: true });
  await using source = await testDatabase();
  const config = configOf(own);
  await createBackup({ config: configOf(source), file });
  const whole = await readFile(file);
  const edit = (from: RegExp, to: string) => {
    const end = whole.indexOf("\n");
    const header = whole.subarray(0, end).toString().replace(from, to);
    return writeFile(file, Buffer.concat([Buffer.from(header), whole.subarray(end)]));
  };
  await edit(/"schema":"\w+"/, `"schema":"${randomUUID()}"`);
  await expect(restoreBackup({ config, file })).rejects.toThrow(
    /another database schema\. Restore it with the version that made it/,
  );
  await edit(/"version":1/, `"version":2`);
  await expect(restoreBackup({ config, file })).rejects.toThrow(/has format 2; this Khala reads format 1/);
  await writeFile(file, "-- PostgreSQL database dump\n");
  await expect(restoreBackup({ config, file })).rejects.toThrow(/is not a Khala backup/);
  await expect(verifyBackup({ file: join(folder, "none") })).rejects.toThrow(/cannot be opened: ENOENT/);
});

test("detects a damaged backup, and its restore changes nothing", async () => {
  await using source = await testDatabase();
  await using own = await testDatabase({ empty: true });
  const config = configOf(own);
  await fill(source.database);
  await createBackup({ config: configOf(source), file });
  const whole = await readFile(file);
  await restoreBackup({ config, file });
  const before = await within(own, contents);

  const damages: Record<string, () => Promise<void>> = {
    cut: () => truncate(file, whole.length - 100),
    "without its body": () => truncate(file, whole.indexOf("\n") + 1),
    "a bit flipped": () =>
      writeFile(
        file,
        whole.map((byte, i) => (i === whole.length - 1_000 ? byte ^ 1 : byte)),
      ),
    "another header": () =>
      writeFile(file, whole.toString("latin1").replace('"khala":"0', '"khala":"9'), "latin1"),
  };
  for (const [name, damage] of Object.entries(damages)) {
    await writeFile(file, whole);
    await damage();
    await expect(verifyBackup({ file }), name).rejects.toThrow(/is damaged: .* Use another one/);
    await expect(restoreBackup({ config, file, replace: true }), name).rejects.toThrow(/is damaged/);
  }
  expect(await within(own, contents)).toEqual(before);
});

test("an aborted backup leaves no file, and an aborted restore changes nothing", async () => {
  await using source = await testDatabase();
  await using target = await testDatabase({ empty: true });
  await fill(source.database);
  const stopping = new AbortController();
  const { signal } = stopping;
  const onProgress = () => stopping.abort();
  await expect(createBackup({ config: configOf(source), file, signal, onProgress })).rejects.toThrow();
  expect([existsSync(file), existsSync(`${file}.partial`)]).toEqual([false, false]);

  await createBackup({ config: configOf(source), file });
  await expect(createBackup({ config: configOf(source), file })).rejects.toThrow(/exists already/);
  await expect(restoreBackup({ config: configOf(target), file, signal })).rejects.toThrow();
  await restoreBackup({ config: configOf(target), file });
});
