import { KhalaError } from "@khala/contracts";
import { isConnectionFailure } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";

/** The SQLSTATE of an error, or nothing. */
export function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? "";
}

/** True when an artifact was on the board already. */
export function isDuplicate(error: unknown): boolean {
  return codeOf(error) === "23505";
}

/** True when a settlement with outputs had a claim that another process holds now. */
export function isLostClaim(error: unknown): boolean {
  return codeOf(error) === "KB001";
}

/** True when a statement may succeed if it is repeated as it is: serialization failure, deadlock, lock timeout. */
export function isRepeatable(error: unknown): boolean {
  return ["40001", "40P01", "55P03"].includes(codeOf(error));
}

/** SQLSTATE classes that speak of the rows: data, constraints, limits such as the size of an index row, and raised errors. */
const FAULT_CLASSES = ["22", "23", "54", "P0"];

/** True when the rows are at fault, however often they are tried, and not the connection, a lock or the server. */
export function isItemsFault(error: unknown): boolean {
  if (error instanceof KhalaError) return !error.meaning.retryable;
  // A row that cannot be read or written as JSON.
  if (error instanceof SyntaxError || error instanceof TypeError || error instanceof RangeError) return true;
  return FAULT_CLASSES.includes(codeOf(error).slice(0, 2));
}

/** True when it is not known whether a statement was committed. */
export function isUncertain(error: unknown): boolean {
  return error instanceof KhalaError && isConnectionFailure(error.cause);
}

/** Waits before a statement is repeated, longer each time. */
export function waitBeforeRepeat(
  { clock, random }: Pick<Context, "clock" | "random">,
  failures: number,
): Promise<void> {
  return sleep(clock, backoff(failures, random, { base: 5, cap: 500 }));
}

/** The error for a publisher whose statement was repeated too often. */
export function busy(cause: unknown): KhalaError {
  const message = "The board is too busy to take this now. Try again in a moment.";
  return new KhalaError("unavailable", message, { retry_after_ms: 500 }, { cause });
}
