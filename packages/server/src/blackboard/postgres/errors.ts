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
