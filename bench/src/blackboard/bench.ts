import type { Effort } from "../kit/plane.ts";
import type { Postgres } from "../kit/postgres.ts";
import type { Part } from "../kit/report.ts";

/** What every part of the benchmark is given. */
export interface Bench extends Effort {
  readonly postgres: Postgres;
  /** The address of the broker; missing where there is none. */
  readonly kafka?: string;
}

/** Measures one part. */
export type PartRunner = (bench: Bench) => Promise<Part>;

/** Where a board is: its control in PostgreSQL, its flow on Kafka. */
export interface BoardStore {
  readonly url: string;
  readonly kafka?: {
    readonly bootstrap: string;
    readonly prefix: string;
    readonly transactions: boolean;
  };
}

/** As many as the blackboard makes unless it is told otherwise. */
export const PARTITIONS = 8;

/** Tasks that a process works on at a time. */
export const CONCURRENCY = 100;

/** Jobs in one batch, where there are batches. */
export const BATCH = 250;

/** Artifacts or jobs in one call of a publisher, and how many calls it has under way. */
export const CALL = { size: 100, atOnce: 4 } as const;

/** Where a program of the benchmark is. */
export function program(name: string): URL {
  return new URL(`./programs/${name}.ts`, import.meta.url);
}

/** What a job is told: about 250 bytes as JSON. */
export function payload(n: number): { readonly n: number; readonly text: string } {
  return { n, text: TEXT };
}

const TEXT = "An artifact says what somebody found out. ".repeat(5);
