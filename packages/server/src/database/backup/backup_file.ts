import { createHash } from "node:crypto";
import { once } from "node:events";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { createZstdCompress, createZstdDecompress } from "node:zlib";
import { z } from "zod";

// A line of JSON, the header. Then, compressed, frames of a length (4 bytes) and that many bytes: those of each table in the
// header's order, each table ended by an empty frame, and one with the trailer, whose checksum covers all before it.

/** The version of the file format. */
const FORMAT = 1;
const MAX_FRAME = 64 << 10;
const MAX_HEADER = 1 << 20;

const headerSchema = z.object({
  format: z.literal("khala-backup"),
  version: z.number(),
  /** The Khala that made it. */
  khala: z.string(),
  postgres: z.string(),
  created_at: z.string(),
  /** Hash of the schema's tables: see `tablesHash`. */
  schema: z.string(),
  tables: z.array(z.object({ name: z.string(), columns: z.array(z.string()) })),
  /** The next number of each sequence. */
  sequences: z.array(z.object({ name: z.string(), next: z.string() })),
});
const trailerSchema = z.object({ rows: z.array(z.number()), sha256: z.string() });

/** The header of a backup file. */
export type BackupHeader = z.infer<typeof headerSchema>;
/** A header without what every file has. */
export type NewBackup = Omit<BackupHeader, "format" | "version">;
/** A table of a backup. */
export type BackupTable = BackupHeader["tables"][number];

/** Writes a backup file: `write` the rows of a table, then `endTable`, for each table; then `finish`. */
export class BackupWriter {
  readonly #file: string;
  readonly #hash = createHash("sha256");
  readonly #compress = createZstdCompress();
  readonly #stored: Promise<void>;
  readonly #rows: number[] = [];

  private constructor(file: string, handle: FileHandle, header: string) {
    this.#file = file;
    this.#hash.update(header);
    this.#stored = pipeline(this.#compress, handle.createWriteStream({ flush: true }));
    // The next write rejects with it.
    this.#stored.catch(() => {});
  }

  /** Creates the file, under another name until it is whole. Nobody else may read it. */
  static async create(file: string, backup: NewBackup): Promise<BackupWriter> {
    const header = `${JSON.stringify({ format: "khala-backup", version: FORMAT, ...backup })}\n`;
    const handle = await open(partial(file), "w", 0o600);
    try {
      await handle.write(header);
    } catch (error) {
      await handle.close();
      throw error;
    }
    return new BackupWriter(file, handle, header);
  }

  async write(data: Buffer): Promise<void> {
    for (let start = 0; start < data.length; start += MAX_FRAME)
      await this.#frame(data.subarray(start, start + MAX_FRAME));
  }

  async endTable(rows: number): Promise<void> {
    this.#rows.push(rows);
    await this.#frame(Buffer.alloc(0));
  }

  /** Completes the file and gives it its name. */
  async finish(): Promise<void> {
    const sha256 = this.#hash.copy().digest("hex");
    await this.#frame(Buffer.from(JSON.stringify({ rows: this.#rows, sha256 })));
    this.#compress.end();
    await this.#stored;
    await rename(partial(this.#file), this.#file);
  }

  /** Removes an unfinished file. */
  async discard(): Promise<void> {
    this.#compress.destroy();
    await this.#stored.catch(() => {});
    await rm(partial(this.#file), { force: true });
  }

  async #frame(data: Buffer): Promise<void> {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(data.length);
    this.#hash.update(length).update(data);
    this.#compress.write(length);
    if (!this.#compress.write(data)) await Promise.race([once(this.#compress, "drain"), this.#stored]);
  }
}

const partial = (file: string) => `${file}.partial`;

/** Reads a backup file: `readTable` for each table of the header, in order, then `finish`. */
export class BackupReader implements AsyncDisposable {
  readonly header: BackupHeader;
  readonly #file: string;
  readonly #hash = createHash("sha256");
  readonly #decompress = createZstdDecompress();
  readonly #chunks: AsyncIterator<Buffer>;
  readonly #stored: ReturnType<FileHandle["createReadStream"]>;
  readonly #bytes: number;
  #buffer: Buffer = Buffer.alloc(0);

  private constructor(file: string, handle: FileHandle, headerLine: Buffer, bytes: number) {
    this.#file = file;
    this.#bytes = bytes;
    this.header = parseHeader(file, headerLine);
    this.#hash.update(headerLine);
    this.#stored = handle.createReadStream({ start: headerLine.length });
    this.#chunks = this.#decompress[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
    // A failure also ends the iterator with it.
    pipeline(this.#stored, this.#decompress).catch(() => {});
  }

  /** Opens a file and reads its header. */
  static async open(file: string): Promise<BackupReader> {
    const handle = await open(file, "r").catch((cause) => {
      throw new Error(`The backup ${file} cannot be opened: ${(cause as Error).message}.`, { cause });
    });
    try {
      const { size } = await handle.stat();
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(size, MAX_HEADER)), 0, null, 0);
      const end = buffer.subarray(0, bytesRead).indexOf("\n");
      if (end < 0) throw notABackup(file);
      return new BackupReader(file, handle, buffer.subarray(0, end + 1), size);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  /** The fraction of the file that has been read, from 0 to 1. */
  get share(): number {
    return (
      (this.#bytes - (this.#stored.readableEnded ? 0 : this.#bytes - this.#stored.bytesRead)) / this.#bytes
    );
  }

  /** The rows of the next table, as COPY has them. To be read to the end. */
  async *readTable(): AsyncGenerator<Buffer> {
    for (;;) {
      const data = await this.#frame();
      if (data.length === 0) return;
      yield data;
    }
  }

  /** Checks the end of the file; resolves with the number of rows of each table. */
  async finish(): Promise<readonly number[]> {
    const expected = this.#hash.copy().digest("hex");
    let trailer: z.infer<typeof trailerSchema>;
    try {
      trailer = trailerSchema.parse(JSON.parse((await this.#frame()).toString()));
    } catch (cause) {
      throw this.#damaged("its end cannot be read", cause);
    }
    if (trailer.sha256 !== expected) throw this.#damaged("its checksum is wrong");
    if (trailer.rows.length !== this.header.tables.length) throw this.#damaged("tables are missing");
    return trailer.rows;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#decompress.destroy();
    if (this.#stored.closed) return;
    this.#stored.destroy();
    await once(this.#stored, "close");
  }

  async #frame(): Promise<Buffer> {
    const length = await this.#take(4);
    const size = length.readUInt32BE();
    if (size > MAX_FRAME) throw this.#damaged("a part is longer than the limit");
    const data = await this.#take(size);
    this.#hash.update(length).update(data);
    return data;
  }

  async #take(bytes: number): Promise<Buffer> {
    const parts = [this.#buffer];
    let there = this.#buffer.length;
    while (there < bytes) {
      const { value, done } = await this.#chunks.next().catch((cause) => {
        throw this.#damaged("it cannot be decompressed", cause);
      });
      if (done) throw this.#damaged("its end is missing");
      parts.push(value);
      there += value.length;
    }
    const all = parts.length === 1 ? this.#buffer : Buffer.concat(parts);
    this.#buffer = all.subarray(bytes);
    return all.subarray(0, bytes);
  }

  #damaged(what: string, cause?: unknown): Error {
    return new Error(`The backup ${this.#file} is damaged: ${what}. Use another one.`, { cause });
  }
}

function parseHeader(file: string, line: Buffer): BackupHeader {
  let header: unknown;
  try {
    header = JSON.parse(line.toString());
  } catch {
    throw notABackup(file);
  }
  const { format, version } = header as Partial<BackupHeader>;
  if (format !== "khala-backup") throw notABackup(file);
  if (version !== FORMAT)
    throw new Error(
      `The backup ${file} has format ${version}; this Khala reads format ${FORMAT}. Restore it with the Khala version that made it.`,
    );
  return headerSchema.parse(header);
}

function notABackup(file: string): Error {
  return new Error(`${file} is not a Khala backup. Name a file that \`khala backup\` wrote.`);
}
