import { once } from "node:events";
import type { Socket } from "node:net";
import pg from "pg";

/** The part of pg's connection that a COPY uses. Its types omit it. */
interface Wire {
  readonly stream: Socket;
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
}

/** A COPY statement; resolves with the number of rows. */
abstract class Copy extends pg.Query {
  readonly #statement: string;
  readonly #settled: PromiseWithResolvers<number> = Promise.withResolvers();
  #rows = 0;
  /** The first failure on this side, which the server's complaint about it must not hide. */
  protected failure: Error | undefined;

  constructor(statement: string) {
    super("");
    this.#statement = statement;
  }

  get copied(): Promise<number> {
    return this.#settled.promise;
  }

  // The types of pg name no method that sends a statement without a result.
  override submit = (connection: pg.Connection): void =>
    (connection as unknown as Wire).query(this.#statement);

  handleCommandComplete({ text }: { text: string }): void {
    this.#rows = Number(/\d+$/.exec(text)?.[0] ?? 0);
  }

  handleReadyForQuery(): void {
    this.#settled.resolve(this.#rows);
  }

  handleError(error: Error): void {
    this.#settled.reject(this.failure ?? error);
  }

  handleRowDescription(): void {}
  handleDataRow(): void {}
  handleEmptyQuery(): void {}
}

/** Rows are handed on in chunks of about this size. */
const CHUNK_BYTES = 64 << 10;

class CopyOut extends Copy {
  readonly #sink: (chunk: Buffer) => Promise<void>;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #written: Promise<void> = Promise.resolve();
  #chunks = 0;

  constructor(statement: string, sink: (chunk: Buffer) => Promise<void>) {
    super(statement);
    this.#sink = sink;
  }

  handleCopyData({ chunk }: { chunk: Buffer }, { stream }: Wire): void {
    // A copy: the parser uses its buffer again.
    this.#pending.push(Buffer.from(chunk));
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes < CHUNK_BYTES) return;
    stream.pause();
    this.#chunks++;
    this.flush().then(
      () => {
        if (--this.#chunks === 0) stream.resume();
      },
      (error: Error) => {
        this.failure ??= error;
        // The rest of the table is of no use.
        stream.destroy();
      },
    );
  }

  /** Hands on what is pending; resolves when the sink has taken all. */
  flush(): Promise<void> {
    const chunk = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#written = this.#written.then(() => (chunk.length > 0 ? this.#sink(chunk) : undefined));
    return this.#written;
  }
}

class CopyIn extends Copy {
  readonly #source: AsyncIterable<Buffer>;

  constructor(statement: string, source: AsyncIterable<Buffer>) {
    super(statement);
    this.#source = source;
  }

  handleCopyInResponse(connection: Wire): void {
    const ended = this.copied.then(
      () => true,
      () => true,
    );
    this.#send(connection, ended).catch((error: Error) => {
      this.failure ??= error;
      connection.sendCopyFail("The backup cannot be read.");
    });
  }

  async #send(connection: Wire, ended: Promise<boolean>): Promise<void> {
    for await (const chunk of this.#source) {
      connection.sendCopyFromChunk(chunk);
      if (!connection.stream.writableNeedDrain) continue;
      // The server may refuse a row, or go away, while this waits.
      if ((await Promise.race([ended, once(connection.stream, "drain")])) === true) return;
    }
    connection.endCopyFrom();
  }
}

/** Runs `COPY … TO STDOUT`, as fast as `sink` takes it. Resolves with the number of rows. */
export async function copyOut(
  client: pg.Client,
  statement: string,
  sink: (chunk: Buffer) => Promise<void>,
): Promise<number> {
  const copy = new CopyOut(statement, sink);
  client.query(copy);
  const rows = await copy.copied;
  await copy.flush();
  return rows;
}

/** Runs `COPY … FROM STDIN`, as fast as the server takes it. Resolves with the number of rows. */
export function copyIn(client: pg.Client, statement: string, source: AsyncIterable<Buffer>): Promise<number> {
  const copy = new CopyIn(statement, source);
  client.query(copy);
  return copy.copied;
}
