import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { type Artifact, versionKey } from "../model/artifact.ts";

/** Those of the artifacts that are on the board already, by their version key. */
export async function knownOf(
  database: Pick<Database, "query">,
  artifacts: readonly Artifact[],
): Promise<Map<string, Artifact>> {
  if (artifacts.length === 0) return new Map();
  const rows = await database.query<{ body: string }>({
    name: "board_known",
    text: `SELECT a.body FROM unnest($1::uuid[], $2::int[]) AS u(id, version)
      CROSS JOIN LATERAL (
        SELECT a.body FROM runtime.board_artifacts a WHERE a.id = u.id AND a.version = u.version OFFSET 0
      ) a`,
    values: [artifacts.map(({ id }) => id), artifacts.map(({ version }) => version)],
  });
  const known = rows.map(({ body }) => JSON.parse(body) as Artifact);
  return new Map(known.map((artifact) => [versionKey(artifact), artifact]));
}

/** True when a statement failed since an artifact or a task was put there by another in the same moment, or before. */
export function isTaken(error: unknown): boolean {
  return codeOf(error) === "23505";
}

/** True when a statement may succeed if it is repeated as it is. */
export function isRepeatable(error: unknown): boolean {
  return ["40001", "40P01", "55P03"].includes(codeOf(error));
}

/** Waits a moment, longer each time: two that were in each other's way would meet again. */
export function stepAside(
  { clock, random }: Pick<Context, "clock" | "random">,
  failures: number,
): Promise<void> {
  return sleep(clock, backoff(failures, random, { base: 5, cap: 500 }));
}

/** What a publisher is told when the board did not come to it. */
export function busy(cause: unknown): KhalaError {
  const message = "The board is too busy to take this now. Try again in a moment.";
  return new KhalaError("unavailable", message, { retry_after_ms: 500 }, { cause });
}

/** The SQLSTATE of an error, or nothing. */
export function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? "";
}
