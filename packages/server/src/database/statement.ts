/** A statement: named ones are prepared once per connection. */
export interface Statement {
  readonly text: string;
  readonly name?: string;
  readonly values?: readonly unknown[];
}

/** Rows of a statement, bigint for int8. */
export type Row = Record<string, unknown>;
