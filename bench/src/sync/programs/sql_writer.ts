import { runSummaries } from "@khala/server";
import pg from "pg";
import { writeFastPath } from "../../../../packages/server/src/sync/write/write_fast_path.ts";
import { lockProjection } from "../../../../packages/server/src/sync/write/write_statement.ts";
import { serve } from "../../kit/program.ts";
import { docKey, KEYS, ORG, runSummaryText } from "../documents.ts";
import { closedLoop, type Load } from "./closed_loop.ts";

const { topic, table } = runSummaries;

/** The seed's three steps as one statement, which saves it the round trips: its best case. */
const SEED_SQL = `
WITH document AS (
  INSERT INTO runtime.${table} AS t (doc_key, doc_version, payload, payload_hash, org_id, watermark)
  VALUES ($2, $3, $4, sha256($4), $5, 0)
  ON CONFLICT (org_id, doc_key) DO UPDATE SET doc_version = excluded.doc_version, payload = excluded.payload,
    payload_hash = excluded.payload_hash, updated_at = excluded.updated_at
  WHERE t.doc_version < excluded.doc_version
), allocated AS (
  UPDATE runtime.sync_topic_sequences SET next_watermark = next_watermark + 1 WHERE topic = $1 RETURNING next_watermark
)
INSERT INTO runtime.sync_stream_events (topic, watermark, doc_key, doc_version, op, payload, payload_hash, payload_bytes, org_id)
SELECT $1, next_watermark, $2, $3, 'upsert', $4, sha256($4), octet_length($4), $5 FROM allocated`;

let clients: pg.Client[] = [];
const versions = new Uint32Array(KEYS);
const ready = Array.from({ length: KEYS }, (_, n) => Buffer.from(runSummaryText(n, 1_000)));
let next = 0;
let round = 0;

const methods = {
  async open({ url, connections }: { url: string; connections: number }): Promise<void> {
    clients = Array.from(
      { length: connections },
      () => new pg.Client({ connectionString: url, pipeline: true }),
    );
    await Promise.all(clients.map((client) => client.connect()));
  },

  /** The seed's SQL: each writer has a transaction per document. Writers beyond the connections wait for one. */
  seed(load: Load): Promise<number> {
    const writers = Math.min(load.writers, clients.length);
    return closedLoop({ ...load, writers }, async (writer) => {
      const n = next++ % KEYS;
      await clients[writer]!.query({
        name: "seed",
        text: SEED_SQL,
        values: [topic, docKey(n), ++versions[n]!, ready[n], ORG],
      });
    });
  },

  /** The limit: one connection, as many ready-made documents per transaction as there are writers, nothing else. */
  async limit({ writers, ms }: Load): Promise<number> {
    const client = clients[0]!;
    const lock = lockProjection(topic);
    const batches = readyBatches(writers);
    const rate = await closedLoop({ writers: 1, ms }, async () => {
      const batch = batches[round++ % batches.length]!;
      const version = String(1_000_000 + round);
      batch.values[VERSIONS] = Array.from({ length: writers }, () => version);
      await Promise.all([
        client.query("BEGIN"),
        client.query({ ...lock, values: [...lock.values!] }),
        client.query(batch),
        client.query("COMMIT"),
      ]);
    });
    return rate * writers;
  },
};

/** No projection runs here: its checkpoint is written, and stays. */
const STAY = { from: 0n, to: 0n, generation: 0n };
/** Where Khala's statement has the versions. */
const VERSIONS = 2;

/** Statements as Khala makes them, with every value in place but the versions. */
function readyBatches(size: number): { name: string; text: string; values: unknown[] }[] {
  return Array.from({ length: Math.floor(KEYS / size) }, (_, batch) => {
    const writes = Array.from({ length: size }, (_, i) => {
      const n = batch * size + i;
      const payload = runSummaryText(n, 1_000);
      return { docKey: docKey(n), docVersion: 1n, op: "upsert" as const, payload, org: ORG, audience: null };
    });
    const { name, text, values } = writeFastPath(runSummaries, writes, true, STAY);
    return { name: name!, text, values: [...values!] };
  });
}

/** What this program can be asked. */
export type SqlWriter = typeof methods;

serve(methods, async () => {
  await Promise.all(clients.map((client) => client.end()));
});
