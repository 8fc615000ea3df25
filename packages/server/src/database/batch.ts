import type { Writable } from "node:stream";
import pg from "pg";
import { runMessage } from "./run_message.ts";
import type { Row, Statement } from "./statement.ts";

/** What `pg` hands to whatever it runs. Its types leave these out; pg-cursor relies on the same. */
interface Wire {
  readonly stream: Pick<Writable, "cork" | "uncork" | "writable" | "write">;
  /** The text of each named statement that this connection has prepared. */
  readonly parsedStatements: Record<string, string>;
  parse(statement: { name: string; text: string }): void;
  close(statement: { type: "S"; name: string }): void;
  sync(): void;
}

/** How values of each type are read. */
interface Types {
  getTypeParser(oid: number, format: "text"): unknown;
}

type Parser = (text: string) => unknown;

/**
 * Statements that run as one transaction for the price of one: they share a single Sync, and PostgreSQL commits what
 * came before a Sync together, or nothing of it. So there is no BEGIN, no COMMIT, one write and one answer. It is a query to
 * `pg`, which sends nothing else before it has the answers to what it sent.
 */
export class Batch extends pg.Query {
  readonly #statements: readonly Statement[];
  readonly #types: Types;
  readonly #settled: PromiseWithResolvers<Row[][]> = Promise.withResolvers();
  readonly #results: Row[][] = [];
  #rows: Row[] = [];
  #names: string[] = [];
  #parsers: Parser[] = [];
  #wire: Wire | undefined;

  /** How it ends. `pg` puts its own around it, to stop the clock that an answer is waited for with. */
  callback = (error: Error | null, results?: Row[][]): void => {
    if (error) this.#settled.reject(error);
    else this.#settled.resolve(results!);
  };

  constructor(statements: readonly Statement[], types: Types) {
    super("");
    this.#statements = statements;
    this.#types = types;
  }

  /** The rows of each statement, once all of them are committed. */
  get results(): Promise<Row[][]> {
    return this.#settled.promise;
  }

  override submit = (connection: pg.Connection): void => {
    const wire = connection as pg.Connection & Wire;
    this.#wire = wire;
    wire.stream.cork();
    for (const { name = "", text, values = [] } of this.#statements) {
      if (!name || wire.parsedStatements[name] !== text) {
        // A batch that failed may have left it there; closing one that is not there is no error.
        wire.close({ type: "S", name });
        wire.parse({ name, text });
      }
      const message = runMessage(name, values.map(parameter));
      // Like the rest: nothing goes to a connection that has ended, and `pg` knows that it has.
      if (wire.stream.writable) wire.stream.write(message);
    }
    wire.sync();
    wire.stream.uncork();
  };

  handleRowDescription({ fields }: { fields: readonly { name: string; dataTypeID: number }[] }): void {
    this.#names = fields.map((field) => field.name);
    this.#parsers = fields.map((field) => this.#types.getTypeParser(field.dataTypeID, "text") as Parser);
  }

  handleDataRow({ fields }: { fields: readonly (string | null)[] }): void {
    const row: Row = {};
    for (let i = 0; i < fields.length; i++) {
      const text = fields[i]!;
      row[this.#names[i]!] = text === null ? null : this.#parsers[i]!(text);
    }
    this.#rows.push(row);
  }

  handleCommandComplete(): void {
    this.#results.push(this.#rows);
    this.#rows = [];
  }

  handleReadyForQuery(): void {
    for (const { name, text } of this.#statements) if (name) this.#wire!.parsedStatements[name] = text;
    this.callback(null, this.#results);
  }

  handleError(error: Error): void {
    this.callback(error);
  }

  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
}

const SPECIAL = /["\\]/;
const ALL_SPECIAL = /["\\]/g;
/** What JSON escapes and PostgreSQL does not. */
const CONTROL = /[^ -\uffff]/;

/** A value as PostgreSQL reads it: text, or bytes as they are. */
function parameter(value: unknown): string | Buffer | null {
  if (value === null || value === undefined) return null;
  if (Buffer.isBuffer(value)) return value;
  if (Array.isArray(value)) return `{${value.map(element).join()}}`;
  return scalar(value);
}

function element(value: unknown): string {
  if (typeof value === "number" || typeof value === "bigint") return `${value}`;
  if (value === null || value === undefined) return "NULL";
  if (typeof value !== "string") return scalar(value);
  if (!SPECIAL.test(value)) return `"${value}"`;
  // For quotes and backslashes both escape alike, and JSON's own is much faster.
  if (value.isWellFormed() && !CONTROL.test(value)) return JSON.stringify(value);
  return `"${value.replace(ALL_SPECIAL, "\\$&")}"`;
}

function scalar(value: unknown): string {
  if (value instanceof Date) return value.toISOString();
  if (typeof value === "object")
    throw new TypeError("A parameter is a scalar, bytes, or an array of scalars.");
  return String(value);
}
