import type { Writable } from "node:stream";
import pg from "pg";

/** A statement: named ones are prepared once per connection. */
export interface Statement {
  readonly text: string;
  readonly name?: string;
  readonly values?: readonly unknown[];
}

/** Rows of a statement, bigint for int8. */
export type Row = Record<string, unknown>;

/** The part of pg's connection that a query uses. Its types omit it; pg-cursor relies on the same. */
interface Wire {
  readonly stream: Pick<Writable, "cork" | "uncork" | "destroy">;
  /** The text of each named statement that this connection has prepared. */
  readonly parsedStatements: Record<string, string>;
  parse(statement: { name: string; text: string }): void;
  close(statement: { type: "S"; name: string }): void;
  bind(portal: { statement: string; values: readonly (string | Buffer | null)[] }): void;
  describe(portal: { type: "P"; name: string }): void;
  execute(portal: { portal: string }): void;
  sync(): void;
}

/** The parsers of column types. */
interface Types {
  getTypeParser(oid: number, format: "text"): unknown;
}

type Parser = (text: string) => unknown;

/**
 * Statements that run as one transaction in one round trip. They share a single Sync message: PostgreSQL commits everything
 * before a Sync together, or nothing. So there is no BEGIN, no COMMIT, one write and one answer.
 */
export class Batch extends pg.Query {
  readonly #statements: readonly { name: string; text: string; values: (string | Buffer | null)[] }[];
  readonly #types: Types;
  readonly #settled: PromiseWithResolvers<Row[][]> = Promise.withResolvers();
  readonly #results: Row[][] = [];
  #rows: Row[] = [];
  #names: string[] = [];
  #parsers: Parser[] = [];
  #wire: Wire | undefined;

  /** Called at the end. `pg` wraps it, to stop its answer timeout. */
  callback = (error: Error | null, results?: Row[][]): void => {
    if (error) this.#settled.reject(error);
    else this.#settled.resolve(results!);
  };

  constructor(statements: readonly Statement[], types: Types) {
    super("");
    // Encoded here: a value that cannot be must fail its caller before anything is sent.
    this.#statements = statements.map(({ name = "", text, values = [] }) => ({
      name,
      text,
      values: values.map(parameter),
    }));
    this.#types = types;
  }

  /** The rows of each statement, after the commit. */
  get results(): Promise<Row[][]> {
    return this.#settled.promise;
  }

  override submit = (connection: pg.Connection): Error | undefined => {
    const wire = connection as pg.Connection & Wire;
    this.#wire = wire;
    wire.stream.cork();
    try {
      for (const { name, text, values } of this.#statements) {
        if (!name || wire.parsedStatements[name] !== text) {
          // A failed batch may have prepared it already; closing an unknown name is no error.
          wire.close({ type: "S", name });
          wire.parse({ name, text });
        }
        wire.bind({ statement: name, values });
        wire.describe({ type: "P", name: "" });
        wire.execute({ portal: "" });
      }
      wire.sync();
    } catch (error) {
      // Without its Sync, a part of it would be committed with the next caller's statements.
      wire.stream.destroy();
      return error as Error;
    } finally {
      wire.stream.uncork();
    }
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
    if (isStalePreparation(error))
      for (const { name } of this.#statements) delete this.#wire?.parsedStatements[name];
    this.callback(error);
  }

  handleEmptyQuery(): void {}
  handlePortalSuspended(): void {}
}

/**
 * True when the server cannot use a prepared statement any more, or does not know it: its result type has changed, or a pooler
 * or DISCARD has dropped it. The batch was rolled back, and prepares its statements again when it is repeated.
 */
export function isStalePreparation(error: unknown): boolean {
  return ["0A000", "26000", "42P05"].includes((error as { code?: string }).code ?? "");
}

const SPECIAL = /["\\]/;
const ALL_SPECIAL = /["\\]/g;
/** Characters that JSON escapes and PostgreSQL does not. */
const CONTROL = /[^ -\uffff]/;

/** Encodes a value for PostgreSQL: as text, or bytes unchanged. */
function parameter(value: unknown): string | Buffer | null {
  if (value === null || value === undefined) return null;
  if (Buffer.isBuffer(value)) return value;
  if (Array.isArray(value)) return `{${value.map(element).join()}}`;
  return scalar(value);
}

function element(value: unknown): string {
  if (typeof value === "number" || typeof value === "bigint") return `${value}`;
  if (value === null || value === undefined) return "NULL";
  if (Buffer.isBuffer(value)) return `"\\\\x${value.toString("hex")}"`;
  if (typeof value !== "string") return scalar(value);
  if (!SPECIAL.test(value)) return `"${value}"`;
  // JSON escapes quotes and backslashes in the same way, and much faster.
  if (value.isWellFormed() && !CONTROL.test(value)) return JSON.stringify(value);
  return `"${value.replace(ALL_SPECIAL, "\\$&")}"`;
}

function scalar(value: unknown): string {
  if (value instanceof Date) return value.toISOString();
  if (typeof value === "object")
    throw new TypeError("A parameter must be a scalar, a Buffer, or an array of those.");
  return String(value);
}
