import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { DeadLetter } from "../model/task.ts";
import { unbundleStatements } from "./bundles.ts";
import type { MissingTask } from "./claims.ts";
import { QUEUE } from "./statements.ts";

/** Parks a claim whose artifact is not there any more: nobody can work on it. Answers whose lanes go on. */
export async function parkMissing(
  database: Database,
  { clock, newId, log }: Context,
  holder: string,
  agent: string,
  { seq, attempt, task_id, bundle }: MissingTask,
): Promise<Set<string>> {
  const letter: DeadLetter = {
    id: newId(),
    agent,
    failure: {
      class: "ArtifactMissing",
      message: `The artifact of task ${task_id} is not on the board any more. Publish it again if it is still wanted.`,
      kind: "fatal",
    },
    attempts: attempt - 1,
    failed_at: new Date(clock.now()).toISOString(),
    origin: `${QUEUE}/0@${seq}`,
  };
  const park: Statement = {
    name: "board_park",
    text: `SELECT promoted FROM runtime.board_settle($1, ARRAY[$2::bigint], ARRAY[$3::int], ARRAY['dead'], NULL, ARRAY[$4],
      NULL, ARRAY[$5::uuid], ARRAY[$6::uuid], NULL, ARRAY[$7], false, NULL, 0, NULL, NULL)`,
    values: [holder, seq, attempt, agent, letter.id, task_id, JSON.stringify(letter)],
  };
  const unbundle = unbundleStatements(holder, [{ seq, bundle, task: { agent } }]);
  const rows = (await database.transaction([...unbundle, park])).at(-1)!;
  log.error({ agent, task: task_id }, "the artifact of a task is missing: the task is a dead letter");
  return new Set(rows.flatMap(({ promoted }) => (promoted as string | null) ?? []));
}
