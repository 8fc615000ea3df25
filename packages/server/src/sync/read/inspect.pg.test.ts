import { readsOf } from "@khala/test-support/postgres/plans";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database, Statement } from "../../database/database.ts";
import { runSummaries } from "../models/runtime.ts";
import { documentHistory, searchDocuments } from "./inspect.ts";

test("searches of an operator use an index, among any number of other rows", async () => {
  await using own = await testDatabase();
  const statements: Statement[] = [];
  const database: Database = {
    ...own.database,
    query(statement) {
      statements.push(statement);
      return own.database.query(statement);
    },
  };
  const ada = { org: "acme", subject: "ada" };
  await own.database.query({
    text: `INSERT INTO runtime.sync_run_summaries (doc_key, doc_version, payload, org_id, audience, watermark)
      SELECT 'run:' || i, 1, '{}', 'org' || i % 100, CASE WHEN i % 2 = 0 THEN ARRAY['user' || i] END, i
      FROM generate_series(1, 20000) i`,
  });
  await own.database.query({
    text: `INSERT INTO runtime.sync_stream_events
        (topic, watermark, doc_key, doc_version, op, payload, payload_bytes, org_id, audience)
      SELECT $1, watermark, doc_key, 1, 'upsert', payload, 2, org_id, audience FROM runtime.sync_run_summaries`,
    values: [runSummaries.topic],
  });
  await own.database.query({ text: "VACUUM ANALYZE runtime.sync_run_summaries, runtime.sync_stream_events" });
  await searchDocuments(database, runSummaries, ada, { search: "x", after: "run:a", limit: 10 });
  await database.query({
    text: `INSERT INTO runtime.sync_run_summaries (doc_key, doc_version, payload, org_id, watermark)
      VALUES ('run:a', 1, '{}', 'acme', 1)`,
  });
  const bounds = { limit: 10, payloadBytes: 1_000 };
  expect(await documentHistory(database, runSummaries, "run:a", ada, bounds)).toEqual([]);
  const named = statements.filter(({ name }) => name?.startsWith("ops_"));
  expect(named.length).toBe(3);
  for (const statement of named)
    for (const read of await readsOf(own.database, statement))
      expect.soft(read, statement.name).toMatch(/^sync_\w+_(org|audience|pkey|document): \(/);
});
