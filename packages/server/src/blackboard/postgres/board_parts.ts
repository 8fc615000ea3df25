import type { Database } from "../../database/database.ts";
import { backoff } from "../../kit/backoff.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { BoardOptions, Routed } from "../board_options.ts";
import { type Artifact, versionKey } from "../model/artifact.ts";
import type { Lanes } from "./lanes.ts";
import { BY_INDEX } from "./statements.ts";

/** The parts shared by publishing and settling. */
export interface BoardParts {
  readonly database: Database;
  readonly context: Context;
  readonly options: BoardOptions;
  readonly lanes: Lanes;
  /** Reports the approximate number of tasks of these agents that can be claimed now. */
  created(agents: ReadonlySet<string>, tasks: number): void;
}

/** Artifacts with what they lead to. */
export function route({ route }: BoardOptions, artifacts: readonly Artifact[]): Routed[] {
  return artifacts.map((artifact) => ({ artifact, routing: route(artifact) }));
}

/** Tells the observer and the workers of artifacts that are on the board now, and of their tasks. */
export function tellOfArtifacts({ options, created }: BoardParts, items: readonly Routed[]): void {
  options.observer.published(items.map(({ artifact }) => artifact));
  const agents = new Set<string>();
  let tasks = 0;
  for (const { artifact, routing } of items) {
    options.observer.routed(artifact, routing.tasks);
    tasks += routing.tasks.length;
    for (const { agent } of routing.tasks) agents.add(agent);
  }
  if (tasks > 0) created(agents, tasks);
}

/** The artifacts, of these, that are on the board already, by their version key. */
export async function knownArtifacts(
  database: Pick<Database, "transaction">,
  artifacts: readonly Artifact[],
): Promise<Map<string, Artifact>> {
  if (artifacts.length === 0) return new Map();
  const statement = {
    name: "board_known",
    text: `SELECT a.body FROM unnest($1::text[], $2::uuid[], $3::int[]) AS u(org, id, version)
      CROSS JOIN LATERAL (
        SELECT a.body FROM runtime.board_artifacts a
        WHERE a.org_id = u.org AND a.id = u.id AND a.version = u.version OFFSET 0
      ) a`,
    values: [
      artifacts.map(({ org_id }) => org_id),
      artifacts.map(({ id }) => id),
      artifacts.map(({ version }) => version),
    ],
  };
  const [, rows] = await database.transaction([BY_INDEX, statement]);
  const known = rows!.map(({ body }) => JSON.parse(body as string) as Artifact);
  return new Map(known.map((artifact) => [versionKey(artifact), artifact]));
}

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
