import type { Postgres } from "../kit/postgres.ts";
import type { Part } from "../kit/report.ts";

/** What every part of the benchmark is given. */
export interface Bench {
  readonly postgres: Postgres;
  /** False where Centrifugo is not installed: its columns are left out. */
  readonly centrifugo: boolean;
  /** How often each measurement is repeated. */
  readonly rounds: number;
  /** True for a short look while developing. */
  readonly quick: boolean;
}

/** Measures one part. */
export type PartRunner = (bench: Bench) => Promise<Part>;

/** Where a program of the sync benchmark is. */
export function program(name: string): URL {
  return new URL(`./programs/${name}.ts`, import.meta.url);
}
