import type { Part } from "./report.ts";

/** How long a benchmark may take. */
export interface Effort {
  /** How often each measurement is repeated. */
  readonly rounds: number;
  /** True for a short look while developing. */
  readonly quick: boolean;
}

/** What can be measured of one plane, once everything that it needs is started. */
export interface OpenPlane {
  /** The versions of everything that is compared. */
  readonly versions: readonly string[];
  measure(part: string): Promise<Part>;
}

/** A plane's benchmark. */
export interface Plane {
  /** Its parts by their letters, in order. */
  readonly parts: readonly string[];
  /** The file that a full run writes, beside `src`; without one it only prints. */
  readonly results?: string;
  /** Starts what these parts have in common; it is disposed of with the stack. */
  open(effort: Effort, stack: AsyncDisposableStack, parts: readonly string[]): Promise<OpenPlane>;
}
