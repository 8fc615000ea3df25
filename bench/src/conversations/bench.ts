import type { Effort } from "../kit/plane.ts";
import type { Postgres } from "../kit/postgres.ts";
import type { Part } from "../kit/report.ts";

/** What every part of the benchmark is given. */
export interface Bench extends Effort {
  readonly postgres: Postgres;
}

/** Measures one part. */
export type PartRunner = (bench: Bench) => Promise<Part>;

/** Where Khala keeps what: records in PostgreSQL, logs in Redis or there as well. */
export interface Store {
  readonly url: string;
  readonly redis?: string;
}

/** Where a program of the benchmark is. */
export function program(name: string): URL {
  return new URL(`./programs/${name}.ts`, import.meta.url);
}

/** The nth conversation, which belongs to `user_<n>`. */
export function convId(n: number): string {
  return `bench-${n}`;
}
