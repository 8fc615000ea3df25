import { KhalaError } from "@khala/contracts";
import pg from "pg";
import type { Logger } from "pino";
import { Batch, type Row, type Statement } from "./batch.ts";
import { type Checkout, PipelinedConnections } from "./pipelined_connections.ts";

export type { Row, Statement };

/** Where SQL runs: one pool for the process. */
export interface Database {
  /** Runs one statement on any connection. */
  query<T = Row>(statement: Statement): Promise<T[]>;
  /**
   * Runs statements as one transaction in one round trip: none waits for another's answer.
   * The first failure rolls all of it back and is thrown. Transactions of one pipeline run in the order of the calls, each
   * sent before the one before is answered.
   */
  transaction(statements: readonly Statement[], pipeline?: string): Promise<Row[][]>;
  /** Runs `fn` inside a transaction on one connection, for work that depends on answers in between. */
  interactive<T>(fn: (tx: Pick<Database, "query">) => Promise<T>, mode?: string): Promise<T>;
  /**
   * Identifies the server that the pool's newest connection reached: its start time. It is known before that connection is
   * used. A caller that finds it changed after a read may have rows of a restored or promoted server.
   */
  server(): string | undefined;
  /**
   * Runs `work` in a transaction whenever the pool reaches another server than before (a restart, a failover, a restore),
   * before anything else is sent to that one.
   */
  onNewServer(work: (tx: Pick<Database, "query">) => Promise<unknown>): void;
  /** A connection of its own, outside the pool, for LISTEN and session locks. The caller ends it. */
  connect(): Promise<pg.Client>;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  readonly url: string;
  readonly poolSize: number;
  readonly log: Logger;
  readonly connectTimeoutMs?: number;
  readonly statementTimeoutMs?: number;
  /** Timeout for an answer; default: a little longer than the statement timeout. */
  readonly answerTimeoutMs?: number;
}

/** Statements here run for milliseconds: compiling one takes longer than running it, on a stock server up to seconds. */
const JIT_OFF = "set_config('jit', 'off', false)";

const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, BigInt);

/** Opens the pool. Nothing connects until the first statement. */
export function openDatabase(options: DatabaseOptions): Database {
  const { statementTimeoutMs = 30_000, answerTimeoutMs = statementTimeoutMs + 5_000 } = options;
  const config = {
    connectionString: options.url,
    types,
    keepAlive: true,
    application_name: "khala",
    connectionTimeoutMillis: options.connectTimeoutMs ?? 5_000,
    statement_timeout: statementTimeoutMs,
    // A paused process must not hold a topic's row lock forever.
    idle_in_transaction_session_timeout: 15_000,
  };
  // An unhandled error event would end the process. The running statement fails as well, and its caller handles that.
  const broke = (error: Error) => options.log.debug({ err: error.message }, "a database connection failed");
  let server: string | undefined;
  let newServer: Parameters<Database["onNewServer"]>[0] = async () => {};
  /** The server that is being greeted, by one connection for all. */
  let greeted: { readonly server: string; readonly done: Promise<void> } | undefined;

  /** Prepares a new connection before its first use. */
  async function prepare(client: pg.ClientBase): Promise<void> {
    // The pool handles errors of idle connections only.
    client.on("error", broke);
    const { rows } = await client.query(`SELECT pg_postmaster_start_time()::text AS server, ${JIT_OFF}`);
    const reached: string = rows[0].server;
    if (server !== undefined && reached !== server) {
      if (greeted?.server !== reached) greeted = { server: reached, done: greet(client) };
      await greeted.done;
    }
    server = reached;
  }

  async function greet(client: pg.ClientBase): Promise<void> {
    try {
      await inTransaction(client, newServer);
    } catch (error) {
      greeted = undefined;
      throw error;
    }
  }

  const pool = new pg.Pool({
    ...config,
    max: options.poolSize,
    // A query is sent without waiting for the answer to the one before.
    pipeline: true,
    // The server's statement timeout does not help when the network is gone: then the client closes the connection.
    query_timeout: answerTimeoutMs,
    idleTimeoutMillis: 30_000,
    onConnect: prepare,
  });
  let closing = false;
  pool.on("error", (error) => {
    if (!closing) options.log.warn({ err: error.message }, "an idle database connection failed");
  });

  const pipelines = new PipelinedConnections(() => pool.connect());

  /** A connection for one transaction. */
  async function exclusive(): Promise<Checkout> {
    const client = await pool.connect();
    return { client, release: (failure) => client.release(failure) };
  }

  async function transaction(statements: readonly Statement[], pipeline?: string): Promise<Row[][]> {
    const checkout = pipeline === undefined ? exclusive() : pipelines.checkOut(pipeline);
    const { client, release } = await checkout.catch(translate);
    const batch = new Batch(statements, types);
    let failure: unknown;
    try {
      client.query(batch);
      return await batch.results;
    } catch (error) {
      failure = error;
      return translate(error);
    } finally {
      release(failure && isConnectionFailure(failure) ? (failure as Error) : undefined);
    }
  }

  return {
    async query<T>(statement: Statement) {
      const [rows] = await transaction([statement]);
      return rows as T[];
    },

    transaction,

    async interactive(fn, mode = "") {
      const client = await pool.connect().catch(translate);
      let broken: Error | undefined;
      try {
        return await inTransaction(client, fn, mode, (cause) => {
          broken = cause;
        });
      } catch (error) {
        return translate(error);
      } finally {
        client.release(broken);
      }
    },

    server: () => server,

    onNewServer(work) {
      newServer = work;
    },

    async connect() {
      const client = new pg.Client({ ...config, statement_timeout: 0 });
      // Before connecting: the server may accept and close it at once.
      client.on("error", broke);
      await client.connect().catch(translate);
      await client.query(`SELECT ${JIT_OFF}`).catch(translate);
      return client;
    },

    async close() {
      closing = true;
      await pool.end();
    },
  };
}

async function inTransaction<T>(
  client: pg.ClientBase,
  fn: (tx: Pick<Database, "query">) => Promise<T>,
  mode = "",
  onBroken: (cause: Error) => void = () => {},
): Promise<T> {
  try {
    await client.query(`BEGIN ${mode}`);
    const value = await fn({ query: async (s) => (await client.query(asQuery(s))).rows });
    await client.query("COMMIT");
    return value;
  } catch (error) {
    await client.query("ROLLBACK").catch(onBroken);
    throw error;
  }
}

function asQuery({ name, text, values }: Statement): pg.QueryConfig {
  return { text, ...(name && { name }), ...(values && { values: values as unknown[] }) };
}

/** True for errors that say nothing about the statement: the server went away, or refused the connection. */
export function isConnectionFailure(error: unknown): boolean {
  const { code = "", message = "" } = error as { code?: string; message?: string };
  if (/^(08|57P0|53)/.test(code) || /^E[A-Z]+$/.test(code) || code === "25006") return true;
  const lost = ["Connection terminated", "timeout exceeded when trying to connect", "Query read timeout"];
  return [...lost, "not queryable", "Client was closed"].some((text) => message.includes(text));
}

/** True for errors caused by a value: a retry fails again. */
export function isDataError(error: unknown): boolean {
  // Class 22: data exception, 23: constraint, 54: program limit, such as an index row that is too large.
  return /^(22|23|54)/.test((error as { code?: string }).code ?? "");
}

function translate(error: unknown): never {
  if (!isConnectionFailure(error)) throw error;
  const message = "The database cannot be reached right now. Try again; GET /readyz shows its state.";
  throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 }, { cause: error });
}
