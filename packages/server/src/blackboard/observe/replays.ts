import { KhalaError } from "@khala/contracts";
import type { ReplayAllResponseJson, ReplayResponseJson } from "@khala/contracts/blackboard/v1";
import type { Database, Row, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { DeadLetterName } from "../board_options.ts";
import type { Artifact } from "../model/artifact.ts";
import type { DeadLetter, Task } from "../model/task.ts";
import { outboxValues } from "../publish/outbox.ts";
import type { Sweep } from "../waiting/sweep.ts";

/** A person's replacement of a payload. */
export interface Edit {
  readonly payload: unknown;
}

/** Replays dead letters: each once, however often and from wherever it is requested. */
export interface Replays {
  /** Runs a dead letter again from its first attempt, with the new payload if there is one. A later failure is a new dead letter. */
  replay(agent: string, deadLetter: DeadLetter, edit?: Edit): Promise<Required<ReplayResponseJson>>;
  /** Replays all dead letters, page by page. Those that cannot be decoded are skipped. */
  replayMany(
    agent: string,
    pages: AsyncIterable<readonly DeadLetter[]>,
  ): Promise<Required<ReplayAllResponseJson>>;
  /** The replay ids of these dead letters of an org, where they were replayed. */
  statesOf(agent: string, org: string, ids: readonly string[]): Promise<Map<string, string>>;
}

const MAX_AT_ONCE = 100;
/** Above this number the count is cached, because the dashboard polls it. */
const MANY = 1_000;
const MANY_MS = 5_000;

/** Opens replays. `check` returns the payload as the artifact's schema returns it, or throws. */
export function openReplays(
  database: Database,
  context: Pick<Context, "clock" | "newId">,
  outbox: Pick<Sweep, "wake">,
  check: (type: string, payload: unknown) => Promise<unknown> | unknown,
): Replays {
  /** Sorted by id, so that concurrent replays cannot deadlock. */
  async function insert(agent: string, tasks: readonly (readonly [string, Task])[]): Promise<boolean[]> {
    const now = new Date(context.clock.now());
    const order = tasks.map((_, i) => i).sort((a, b) => (tasks[a]![0] < tasks[b]![0] ? -1 : 1));
    const rows = await database.transaction(order.map((i) => replayStatement(agent, ...tasks[i]!, now)));
    const replayed: boolean[] = [];
    for (const [n, i] of order.entries()) replayed[i] = rows[n]!.length > 0;
    if (replayed.includes(true)) outbox.wake();
    return replayed;
  }

  async function statesOf(agent: string, org: string, ids: readonly string[]): Promise<Map<string, string>> {
    const rows = await database.query<Row & { id: string; replay: string }>({
      name: "board_replay_states",
      text: `SELECT dead_letter_id AS id, replay_id AS replay FROM runtime.board_replays
        WHERE dead_letter_id = ANY ($3::text[]) AND org_id = $2 AND agent = $1`,
      values: [agent, org, ids],
    });
    return new Map(rows.map(({ id, replay }) => [id, replay]));
  }

  return {
    async replay(agent, deadLetter, edit) {
      const task = deadLetter.task && (edit ? await edited(deadLetter.task, edit) : deadLetter.task);
      if (!task) {
        const message =
          "The record could not be decoded, so it cannot run again. Publish the artifact again.";
        throw new KhalaError("invalid_request", message);
      }
      const replayId = context.newId();
      const [replayed] = await insert(agent, [[deadLetter.id, again(task, replayId)]]);
      if (replayed) return { replay_id: replayId, status: "replayed" };
      const known = (await statesOf(agent, task.artifacts[0].org_id, [deadLetter.id])).get(deadLetter.id);
      return { replay_id: known!, status: "already_replayed" };
    },

    async replayMany(agent, pages) {
      let replayed = 0;
      let already = 0;
      for await (const page of pages) {
        for (let at = 0; at < page.length; at += MAX_AT_ONCE) {
          const part = page.slice(at, at + MAX_AT_ONCE);
          const tasks = part.flatMap(({ id, task }) =>
            task ? [[id, again(task, context.newId())] as const] : [],
          );
          const outcomes = await insert(agent, tasks);
          const fresh = outcomes.filter(Boolean).length;
          replayed += fresh;
          already += outcomes.length - fresh;
        }
      }
      return { replayed, already_replayed: already };
    },

    statesOf,
  };

  async function edited(task: Task, { payload }: Edit): Promise<Task> {
    if (task.artifacts.length > 1) {
      const message = `The task has ${task.artifacts.length} artifacts, so its payload cannot be replaced. Replay it unchanged, or publish the artifacts again.`;
      throw new KhalaError("invalid_request", message, { field: "payload" });
    }
    const [artifact] = task.artifacts;
    const accepted = (await check(artifact.type, payload)) as Artifact["payload"];
    // An approval of the old payload does not apply to the new one.
    const { approved_by: _, ...rest } = task;
    return { ...rest, artifacts: [{ ...artifact, payload: accepted }] };
  }
}

/** Counts how many of an agent's dead letters were replayed; of many the answer may be some seconds old. */
export function replayCounter(database: Database, { clock }: Pick<Context, "clock">) {
  const counted = new Map<string, { readonly count: number; readonly at: number }>();
  return async (agent: string, letters: readonly DeadLetterName[]): Promise<number> => {
    if (letters.length === 0) return 0;
    const now = clock.now();
    const last = counted.get(agent);
    if (last && letters.length >= MANY && Math.abs(now - last.at) < MANY_MS)
      return Math.min(last.count, letters.length);
    const [row] = await database.query<Row & { count: bigint }>({
      name: "board_replays_count",
      text: `SELECT count(*) FROM runtime.board_replays
        WHERE (dead_letter_id, org_id) IN (SELECT * FROM unnest($2::text[], $3::text[])) AND agent = $1`,
      values: [agent, letters.map(({ id }) => id), letters.map(({ org }) => org)],
    });
    const count = Number(row!.count);
    counted.set(agent, { count, at: now });
    return count;
  };
}

function again(task: Task, replayId: string): Task {
  return { ...task, attempt: 1, replay_id: replayId };
}

/** Only one caller can insert this row, and with it the task. */
function replayStatement(agent: string, deadLetterId: string, task: Task, now: Date): Statement {
  return {
    name: "board_replay",
    text: `WITH fresh AS (
        INSERT INTO runtime.board_replays (agent, org_id, dead_letter_id, replay_id, created_at)
        VALUES ($8, $3, $9, $10, $11) ON CONFLICT DO NOTHING RETURNING 1
      )
      INSERT INTO runtime.board_outbox (kind, ref, org_id, correlation_id, body, due_at, not_before)
      SELECT $1::text, $2::text, $3::text, $4::text, $5::json, $6::timestamptz, $7::timestamptz FROM fresh
      RETURNING 1`,
    values: [...outboxValues({ kind: "task", body: task }, now), agent, deadLetterId, task.replay_id, now],
  };
}
