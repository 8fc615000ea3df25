import { notFound } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import { openLimiter } from "../../kit/limiter.ts";
import { type FileStore, inPieces } from "./file_store.ts";

const CHUNK_BYTES = 256 << 10;
/** Chunks of one org that are read at a time: its downloads must not take every connection. */
const READS_PER_ORG = 2;

/** Opens the store of files in Postgres: chunks of 256 KiB, each a row, written and read one at a time. */
export function openPostgresFileStore(database: Database): FileStore {
  const reads = openLimiter(READS_PER_ORG);
  return {
    inBucket: false,

    async put({ org, fileId }, bytes) {
      let chunk = 0;
      for await (const data of inPieces(bytes, CHUNK_BYTES)) {
        // Without a row of the file, because its conversation was deleted during the upload, nothing is stored.
        const [stored] = await database.query({
          name: "file_put",
          text: `INSERT INTO runtime.file_chunks (org_id, file_id, chunk, data)
            SELECT org_id, file_id, $3, $4 FROM runtime.files WHERE org_id = $1 AND file_id = $2 FOR KEY SHARE
            RETURNING 1 AS one`,
          values: [org, fileId, chunk++, data],
        });
        if (!stored) throw notFound("file", fileId);
      }
    },

    async *get({ org, fileId }, { start, end }) {
      for (let at = start; at < end; ) {
        const from = at % CHUNK_BYTES;
        const length = Math.min(CHUNK_BYTES - from, end - at);
        const statement = {
          name: "file_get",
          text: `SELECT substring(data FROM $4 FOR $5) AS data FROM runtime.file_chunks
            WHERE org_id = $1 AND file_id = $2 AND chunk = $3`,
          values: [org, fileId, Math.floor(at / CHUNK_BYTES), from + 1, length],
        };
        const [row] = await reads.run(org, () => database.query<{ data: Buffer }>(statement));
        if (row?.data.length !== length) throw notFound("file", fileId);
        yield row.data;
        at += length;
      }
    },

    async delete(keys) {
      await database.query({
        name: "file_delete",
        text: `DELETE FROM runtime.file_chunks c USING unnest($1::text[], $2::text[]) AS f(org_id, file_id)
          WHERE c.org_id = f.org_id COLLATE "C" AND c.file_id = f.file_id COLLATE "C"`,
        values: [keys.map(({ org }) => org), keys.map(({ fileId }) => fileId)],
      });
    },
  };
}
