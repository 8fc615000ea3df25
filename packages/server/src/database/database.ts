import { KhalaError } from "@khala/contracts";
import pg from "pg";
import type { Logger } from "pino";
import { openLimiter } from "../kit/limiter.ts";
import { Batch, isStalePreparation, type Row, type Statement } from "./batch.ts";
import { sessionSettings } from "./session.ts";

export type { Row, Statement };

/** Where SQL runs: one pool for the process. */
export interface Database {
  /** Runs one statement on any connection. */
  query<T = Row>(statement: Statement): Promise<T[]>;
  /**
   * Runs statements as one transaction in one round trip: none waits for another's answer.
   * The first failure rolls all of it back and is thrown.
   */
  transaction(statements: readonly Statement[]): Promise<Row[][]>;
  /** Runs `fn` inside a transaction on one connection, for work that depends on answers in between. */
  interactive<T>(fn: (tx: Pick<Database, "query">) => Promise<T>): Promise<T>;
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
  /** Timeout for an answer; default: a little longer than that of a statement. */
  readonly answerTimeoutMs?: number;
}

const STATEMENT_TIMEOUT_MS = 30_000;

const types = new pg.TypeOverrides();
types.setTypeParser(pg.types.builtins.INT8, BigInt);

/** Opens the pool. Nothing connects until the first statement. */
export function openDatabase(options: DatabaseOptions): Database {
  const { answerTimeoutMs = STATEMENT_TIMEOUT_MS + 5_000 } = options;
  const config = {
    connectionString: options.url,
    types,
    keepAlive: true,
    application_name: "khala",
    connectionTimeoutMillis: options.connectTimeoutMs ?? 5_000,
  };
  // An unhandled error event would end the process. The running statement fails as well, and its caller handles that.
  const broke = (error: Error) => options.log.debug({ err: error.message }, "a database connection failed");
  let server: string | undefined;
  const newServerWork: Parameters<Database["onNewServer"]>[0][] = [];
  /** The server that is being greeted, by one connection for all. */
  let greeted: { readonly server: string; readonly done: Promise<void> } | undefined;

  /** Prepares a new connection before its first use. */
  async function prepare(client: pg.ClientBase): Promise<void> {
    // The pool handles errors of idle connections only.
    client.on("error", broke);
    const { rows } = await client.query(
      `SELECT extract(epoch FROM pg_postmaster_start_time())::text AS server, ${sessionSettings(STATEMENT_TIMEOUT_MS)}`,
    );
    const reached: string = rows[0].server;
    if (server !== undefined && reached !== server) {
      if (greeted?.server !== reached) greeted = { server: reached, done: greet(client) };
      await greeted.done;
    }
    server = reached;
  }

  async function inTransaction<T>(
    client: pg.ClientBase,
    fn: (tx: Pick<Database, "query">) => Promise<T>,
    onBroken: (cause: Error) => void = () => {},
  ): Promise<T> {
    try {
      await client.query("BEGIN");
      const value = await fn({
        // Only batches prepare statements: pg's own queries do not close a name that is in use.
        query: async <R>(statement: Statement) =>
          (await send(client, new Batch([statement], types)))[0] as R[],
      });
      await client.query("COMMIT");
      return value;
    } catch (error) {
      await client.query("ROLLBACK").catch(onBroken);
      throw error;
    }
  }

  async function greet(client: pg.ClientBase): Promise<void> {
    try {
      await inTransaction(client, async (tx) => {
        for (const work of newServerWork) await work(tx);
      });
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
    // The server's statement timeout does not help when the network is down: then the client closes the connection.
    query_timeout: answerTimeoutMs,
    idleTimeoutMillis: 30_000,
    onConnect: prepare,
  });
  let closing = false;
  pool.on("error", (error) => {
    if (!closing) options.log.warn({ err: error.message }, "an idle database connection failed");
  });

  // Work inside a transaction may query outside of it, such as to append to a log: more than half of the pool is for that.
  const transactions = openLimiter(Math.max(1, Math.ceil(options.poolSize / 2) - 1));

  /** Sends statements as one transaction, or as a part of the one that the connection is in. */
  function send(client: pg.ClientBase, batch: Batch): Promise<Row[][]> {
    client.query(batch);
    return batch.results;
  }

  async function transaction(statements: readonly Statement[]): Promise<Row[][]> {
    const batch = new Batch(statements, types);
    const client = await pool.connect().catch(translate);
    let failure: unknown;
    try {
      return await send(client, batch).catch((error) => {
        if (!isStalePreparation(error)) throw error;
        return send(client, new Batch(statements, types));
      });
    } catch (error) {
      failure = error;
      return translate(error);
    } finally {
      client.release(failure && isConnectionFailure(failure) ? (failure as Error) : undefined);
    }
  }

  return {
    async query<T>(statement: Statement) {
      const [rows] = await transaction([statement]);
      return rows as T[];
    },

    transaction,

    interactive: (fn) =>
      transactions.run("", async () => {
        const client = await pool.connect().catch(translate);
        let broken: Error | undefined;
        try {
          return await inTransaction(client, fn, (cause) => {
            broken = cause;
          });
        } catch (error) {
          // Also one that reaches a standby: the next may reach the new primary.
          if (isConnectionFailure(error)) broken ??= error as Error;
          return translate(error);
        } finally {
          client.release(broken);
        }
      }),

    server: () => server,

    onNewServer(work) {
      newServerWork.push(work);
    },

    async connect() {
      const client = new pg.Client(config);
      // Before connecting: the server may accept and close it at once.
      client.on("error", broke);
      await client.connect().catch(translate);
      await client.query(`SELECT ${sessionSettings(0)}`).catch(translate);
      return client;
    },

    async close() {
      closing = true;
      await pool.end();
    },
  };
}

/** Messages of pg and its pool that come without a code. */
const LOST = [
  "Connection terminated",
  "timeout exceeded when trying to connect",
  "timeout expired",
  "Query read timeout",
  "not queryable",
  "Client was closed",
  "does not support SSL connections",
];
/** OpenSSL's and Node's reasons to refuse a certificate, such as SELF_SIGNED_CERT_IN_CHAIN. */
const UNTRUSTED = /CERT|^UNABLE_TO_VERIFY|^INVALID_CA$|^HOSTNAME_MISMATCH$/;
/** Errors of Node's streams on a closed socket. Others with ERR_ are faults of the program. */
const GONE = ["ERR_STREAM_DESTROYED", "ERR_STREAM_WRITE_AFTER_END", "ERR_STREAM_PREMATURE_CLOSE"];

/** True for errors that say nothing about the statement: the server went away, or refused the connection. */
export function isConnectionFailure(error: unknown): boolean {
  const { code = "", message = "" } = error as { code?: string; message?: string };
  // Class 08: connection, 28: login, 3D: a database that is gone, 53: resources, 57P0: shutdown, 25006: a standby. EAI_AGAIN is the resolver's.
  if (/^(08|28|3D|53|57P0|25006$|EAI_)/.test(code) || /^E[A-Z]+$/.test(code) || GONE.includes(code))
    return true;
  if (UNTRUSTED.test(code)) return true;
  return LOST.some((text) => message.includes(text));
}

/** True when it is not known whether a statement was committed. */
export function isUncertain(error: unknown): boolean {
  return error instanceof KhalaError && isConnectionFailure(error.cause);
}

/** True when a rolled-back transaction may succeed as it is: serialization failure, deadlock, lock timeout. */
export function isRepeatable(error: unknown): boolean {
  return /^(40|55P03)/.test(codeOf(error));
}

/** True for errors caused by a value: a retry fails again. */
export function isDataError(error: unknown): boolean {
  // Class 21: cardinality, 22: data exception, 23: constraint, 54: program limit, such as an index row that is too large.
  return /^(21|22|23|54)/.test(codeOf(error));
}

/** True when one item of a batch may be at fault, so that splitting the batch saves the others. */
export function isItemFault(error: unknown): boolean {
  if (error instanceof KhalaError) return error.code !== "unavailable";
  // Errors thrown by the program have no SQLSTATE; P0001 is a trigger that refuses a row.
  const code = codeOf(error);
  return isDataError(error) || code === "P0001" || !/^[0-9A-Z]{5}$/.test(code);
}

function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? "";
}

/** What operators fix, by SQLSTATE. */
const OUTAGES: Readonly<Record<string, string>> = {
  "25006": "The database accepts no writes right now.",
  "53100": "The database has no disk space left.",
  "53300": "The database has no connection left.",
};

function translate(error: unknown): never {
  const isTimeout = codeOf(error) === "57014";
  if (!isTimeout && !isConnectionFailure(error)) throw error;
  const outage = OUTAGES[codeOf(error)] ?? "The database cannot be reached right now.";
  const message = isTimeout
    ? "The database took too long, and nothing was changed. Try again in a moment."
    : `${outage} Try again; GET /readyz shows its state.`;
  throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 }, { cause: error });
}
