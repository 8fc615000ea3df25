import { KhalaError } from "@khala/contracts";
import { notFound } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import type { StoredBytes } from "../../database/stored_bytes.ts";
import type { Context } from "../../kit/context.ts";
import { sha256 } from "../../kit/hash.ts";
import type { ConversationId, ConversationRef } from "../conversation.ts";
import type { ByteRange, FileKey, FileStore } from "./file_store.ts";
import { mediaType, SNIFFED_BYTES } from "./media_type.ts";

/** A file to store. */
export interface NewFile {
  readonly name: string;
  /** The type the sender claims; the first bytes decide. */
  readonly mediaType?: string | undefined;
  /** The sender; null when a run made it. */
  readonly author: string | null;
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** A complete file and its conversation. */
export interface StoredFile extends FileKey {
  readonly convId: string;
  readonly name: string;
  readonly mediaType: string;
  readonly size: number;
  readonly inBucket: boolean;
  readonly createdAt: string;
}

export interface FilesOptions {
  /** Where new files are stored. */
  readonly store: FileStore;
  /** Where files are that were stored before a bucket was named. */
  readonly before?: FileStore | undefined;
  /** The largest file, in bytes. */
  readonly maxBytes: number;
  /** Limits what orgs store. */
  readonly stored?: StoredBytes | undefined;
}

/** The files of conversations. Whether the caller may use them is decided before: access is that of the conversation. */
export interface Files {
  readonly maxBytes: number;
  /** Stores a file. A sender that stops in the middle leaves nothing. */
  put(conversation: ConversationRef, file: NewFile): Promise<StoredFile>;
  /** Stores bytes that are in memory. The same ones of a conversation are stored once. */
  putBytes(conversation: ConversationRef, file: Omit<NewFile, "bytes">, bytes: Buffer): Promise<StoredFile>;
  /** A complete file of the org. */
  find(key: FileKey): Promise<StoredFile | undefined>;
  /** The bytes of a file. */
  read(file: StoredFile, range?: ByteRange): AsyncIterable<Uint8Array>;
  /** Deletes the bytes of a conversation that are outside of the database; its rows go with the conversation's. */
  erase(conversation: ConversationId): Promise<void>;
  /** Deletes the files of a conversation that are a subject's; returns how many. */
  eraseOf(org: string, author: string, convId: string): Promise<number>;
  /** Deletes files whose upload never ended; returns whether there may be more. */
  sweep(): Promise<boolean>;
}

/** Longer than a request may take to arrive. */
const INCOMPLETE_MS = 3_600_000;
const SWEEP_BATCH = 100;

interface Row {
  readonly org: string;
  readonly fileId: string;
  readonly convId: string;
  readonly name: string;
  readonly mediaType: string;
  readonly size: bigint;
  readonly inBucket: boolean;
  readonly createdAt: string;
}

const FILE = `org_id AS org, file_id AS "fileId", conv_id AS "convId", name, media_type AS "mediaType", size, in_bucket AS "inBucket",
  to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS "createdAt"`;

/** Opens the files of conversations. */
export function openFiles(database: Database, context: Context, options: FilesOptions): Files {
  const { store, maxBytes, stored } = options;

  function storeOf({ inBucket }: StoredFile): FileStore {
    const found = [store, options.before].find((each) => each?.inBucket === inBucket);
    if (found) return found;
    throw new KhalaError(
      "unavailable",
      "The file is in a bucket that this server is not configured for. Check KHALA_FILES_S3_URL.",
    );
  }

  /** Counts the bytes against the limits as they pass. */
  async function* limited(
    org: string,
    bytes: AsyncIterable<Uint8Array>,
    counter: { size: number },
  ): AsyncGenerator<Uint8Array> {
    for await (const piece of bytes) {
      counter.size += piece.length;
      if (counter.size > maxBytes) throw tooLarge(maxBytes);
      stored?.take(org, "conversations", piece.length);
      yield piece;
    }
  }

  /** Creates the row of a file whose bytes are about to arrive; undefined when there is one with this id. */
  async function begin(
    key: FileKey,
    { convId, generation }: ConversationRef,
    file: Omit<NewFile, "bytes">,
    type: string,
  ): Promise<boolean> {
    const [row] = await database.query<{ there: boolean; begun: boolean }>({
      name: "file_begin",
      text: `WITH conversation AS (
          SELECT org_id, conv_id FROM runtime.conversations
          WHERE org_id = $1 AND conv_id = $3 AND generation = $4 AND removed_at IS NULL FOR KEY SHARE
        ), begun AS (
          INSERT INTO runtime.files (org_id, file_id, conv_id, author, name, media_type, size, in_bucket)
          SELECT org_id, $2, conv_id, $5, $6, $7, 0, $8 FROM conversation ON CONFLICT DO NOTHING RETURNING 1
        )
        SELECT EXISTS (SELECT FROM conversation) AS there, EXISTS (SELECT FROM begun) AS begun`,
      values: [key.org, key.fileId, convId, generation, file.author, file.name, type, store.inBucket],
    });
    if (!row!.there) throw notFound("conversation", convId);
    return row!.begun;
  }

  async function complete(key: FileKey, size: number): Promise<StoredFile> {
    const [row] = await database.query<Row>({
      name: "file_complete",
      text: `UPDATE runtime.files SET size = $3, stored_at = now()
        WHERE org_id = $1 AND file_id = $2 AND stored_at IS NULL RETURNING ${FILE}`,
      values: [key.org, key.fileId, size],
    });
    if (!row) throw notFound("file", key.fileId);
    return fileOf(row);
  }

  /** Bytes first: a row without bytes is found again, bytes without a row are not. */
  async function remove(keys: readonly FileKey[], inBucket: readonly FileKey[]): Promise<void> {
    if (inBucket.length > 0) await store.delete(inBucket);
    await database.query({
      name: "file_remove",
      text: `DELETE FROM runtime.files f USING unnest($1::text[], $2::text[]) AS gone(org_id, file_id)
        WHERE f.org_id = gone.org_id COLLATE "C" AND f.file_id = gone.file_id COLLATE "C" AND f.stored_at IS NULL`,
      values: [keys.map(({ org }) => org), keys.map(({ fileId }) => fileId)],
    });
  }

  async function write(key: FileKey, bytes: AsyncIterable<Uint8Array>): Promise<StoredFile> {
    const counter = { size: 0 };
    try {
      await store.put(key, limited(key.org, bytes, counter));
      return await complete(key, counter.size);
    } catch (error) {
      await remove([key], store.inBucket ? [key] : []).catch((cause) =>
        context.log.warn(
          { err: cause.message, file: key.fileId },
          "an incomplete file is left to the janitor",
        ),
      );
      throw error;
    }
  }

  async function find({ org, fileId }: FileKey): Promise<StoredFile | undefined> {
    const [row] = await database.query<Row>({
      name: "file_find",
      text: `SELECT ${FILE} FROM runtime.files WHERE org_id = $1 AND file_id = $2 AND stored_at IS NOT NULL`,
      values: [org, fileId],
    });
    return row && fileOf(row);
  }

  return {
    maxBytes,
    find,

    async put(conversation, file) {
      const { head, bytes } = await peek(file.bytes, SNIFFED_BYTES);
      if (head.length === 0)
        throw new KhalaError("invalid_request", "The file is empty. Send its bytes as the body.", {
          field: "body",
        });
      const key = { org: conversation.org, fileId: context.newId() };
      await begin(key, conversation, file, mediaType(head, file.mediaType));
      return write(key, bytes);
    },

    async putBytes(conversation, file, bytes) {
      if (bytes.length > maxBytes) throw tooLarge(maxBytes);
      const { org, convId, generation } = conversation;
      const type = mediaType(bytes.subarray(0, SNIFFED_BYTES), file.mediaType);
      const named = JSON.stringify([convId, String(generation), file.name, type]);
      const fileId = sha256(`${named}${sha256(bytes)}`).slice(0, 32);
      const known = await find({ org, fileId });
      if (known) return known;
      let key = { org, fileId };
      if (!(await begin(key, conversation, file, type))) {
        // Somebody else is storing the same bytes, and may not finish.
        key = { org, fileId: context.newId() };
        await begin(key, conversation, file, type);
      }
      return write(key, once(bytes));
    },

    read: (file, range = { start: 0, end: file.size }) => storeOf(file).get(file, range),

    async erase({ org, convId }) {
      const rows = await database.query<FileKey>({
        name: "files_in_bucket",
        text: `SELECT org_id AS org, file_id AS "fileId" FROM runtime.files
          WHERE org_id = $1 AND conv_id = $2 AND in_bucket`,
        values: [org, convId],
      });
      if (rows.length > 0) await store.delete(rows);
    },

    async eraseOf(org, author, convId) {
      const rows = await database.query<FileKey & { inBucket: boolean }>({
        name: "files_of_author",
        text: `SELECT org_id AS org, file_id AS "fileId", in_bucket AS "inBucket" FROM runtime.files
          WHERE org_id = $1 AND author = $2 AND conv_id = $3`,
        values: [org, author, convId],
      });
      const inBucket = rows.filter((row) => row.inBucket);
      // Bytes first: a row without bytes is found again, bytes without a row are not.
      if (inBucket.length > 0) await store.delete(inBucket);
      await database.query({
        name: "files_remove_of_author",
        text: "DELETE FROM runtime.files WHERE org_id = $1 AND file_id = ANY($2::text[])",
        values: [org, rows.map(({ fileId }) => fileId)],
      });
      return rows.length;
    },

    async sweep() {
      const rows = await database.query<FileKey & { inBucket: boolean }>({
        name: "janitor_files",
        text: `SELECT org_id AS org, file_id AS "fileId", in_bucket AS "inBucket" FROM runtime.files
          WHERE stored_at IS NULL AND created_at < now() - $1 * interval '1 ms' ORDER BY created_at LIMIT $2`,
        values: [INCOMPLETE_MS, SWEEP_BATCH],
      });
      if (rows.length > 0)
        await remove(
          rows,
          rows.filter(({ inBucket }) => inBucket),
        );
      return rows.length === SWEEP_BATCH;
    },
  };
}

function fileOf({ size, ...row }: Row): StoredFile {
  return { ...row, size: Number(size) };
}

function tooLarge(maxBytes: number): KhalaError {
  const message = `A file may have at most ${maxBytes} bytes. Send a smaller one.`;
  return new KhalaError("payload_too_large", message, { field: "body" });
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** The first bytes of a stream, and all of it. */
async function peek(stream: AsyncIterable<Uint8Array>, length: number) {
  const pieces: Uint8Array[] = [];
  const iterator = stream[Symbol.asyncIterator]();
  for (let read = 0; read < length; ) {
    const next = await iterator.next();
    if (next.done) break;
    pieces.push(next.value);
    read += next.value.length;
  }
  async function* bytes(): AsyncGenerator<Uint8Array> {
    try {
      yield* pieces;
      for (let next = await iterator.next(); !next.done; next = await iterator.next()) yield next.value;
    } finally {
      await iterator.return?.();
    }
  }
  return { head: Buffer.concat(pieces).subarray(0, length), bytes: bytes() };
}
