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

/** Waits before a statement is repeated, longer each time. */
export function waitBeforeRepeat(
  { clock, random }: Pick<Context, "clock" | "random">,
  failures: number,
): Promise<void> {
  return sleep(clock, backoff(failures, random, { base: 5, cap: 500 }));
}
