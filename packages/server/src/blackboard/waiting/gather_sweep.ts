import type { Counter } from "@opentelemetry/api";
import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { Board } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import type { Task } from "../model/task.ts";
import { setAsideStatement } from "../observe/set_aside_items.ts";
import { rowOf } from "../publish/outbox.ts";
import type { Due } from "./sweep.ts";

interface GroupRow {
  readonly id: bigint;
  readonly agent: string;
  readonly org: string;
  readonly key: string;
  readonly state: "ready" | "dropped";
  readonly types: readonly string[];
}

/** Sends complete groups and groups that timed out. An incomplete join is sent too: its agent's worker makes it a dead letter. */
export function gatherSweep(
  database: Database,
  board: Pick<Board, "enqueue">,
  context: Context,
  agents: readonly Agent[],
  onDropped: (org: string, correlationId: string) => void = () => {},
): Due<GroupRow> {
  const byName = new Map(agents.map((agent) => [agent.name, agent]));
  const names = [...byName.keys()];
  const groups = groupsCounter(context);
  for (const { name, options } of agents)
    if (options.join || options.batch)
      for (const outcome of ["sent", "dropped"]) groups.add(0, { agent: name, outcome });

  return {
    async claim(now, until, limit) {
      const rows = await database.query<GroupRow>({
        name: "board_gather_claim",
        text: `WITH due AS MATERIALIZED (
            SELECT group_id FROM runtime.board_groups WHERE due_at <= $1 AND agent = ANY ($4::text[])
            ORDER BY due_at, group_id LIMIT $3 FOR UPDATE SKIP LOCKED
          )
          UPDATE runtime.board_groups g SET due_at = $2, state = CASE
            WHEN g.state <> 'open' THEN g.state WHEN g.kind = 'join' THEN 'dropped' ELSE 'ready' END
          FROM due WHERE g.group_id = due.group_id
          RETURNING g.group_id AS id, g.agent, g.org_id AS org, g.key, g.state, g.types`,
        values: [now, until, limit, names],
      });
      return rows.sort((a, b) => (a.id < b.id ? -1 : 1));
    },

    async send(rows) {
      const arrived = await membersOf(
        database,
        rows.map(({ id }) => id),
      );
      const now = context.clock.now();
      const tasks = rows.flatMap(({ id, agent, key }) => {
        const artifacts = arrived.get(id);
        // Another process may have sent it while this one was suspended.
        return artifacts ? [gatheredTask(byName.get(agent)!, key, artifacts, now)] : [];
      });
      if (tasks.length > 0) await board.enqueue(tasks);
    },

    async finish(rows) {
      const dropped = rows.filter(({ state }) => state === "dropped");
      const left = dropped.length > 0 ? await correlationsOf(database, dropped) : [];
      await database.query(removal(rows));
      for (const { org, correlation } of left) onDropped(org, correlation);
      for (const { agent, org, key, state, types } of rows) {
        groups.add(1, { agent, outcome: state === "ready" ? "sent" : "dropped" });
        if (state === "dropped") context.log.warn({ agent, org, key, types }, "a join timed out incomplete");
      }
    },

    async refuse(row, error) {
      const arrived = (await membersOf(database, [row.id])).get(row.id);
      // Another process has finished it.
      if (!arrived) return;
      const body = gatheredTask(byName.get(row.agent)!, row.key, arrived, context.clock.now());
      const { id, agent } = body;
      const item = { loop: "board gather", ...rowOf({ kind: "task", body }), item: id, agent };
      await database.transaction([setAsideStatement(item, error), removal([row])]);
    },

    async release(rows, now) {
      await database.query({
        name: "board_gather_release",
        text: "UPDATE runtime.board_groups SET due_at = $2 WHERE group_id = ANY ($1::bigint[])",
        values: [rows.map(({ id }) => id), now],
      });
    },

    async next() {
      const [row] = await database.query<{ due: Date | null }>({
        name: "board_gather_next",
        text: "SELECT min(due_at) AS due FROM runtime.board_groups WHERE agent = ANY ($1::text[])",
        values: [names],
      });
      return row?.due ?? undefined;
    },

    orgOf: ({ org }) => org,
    describe: ({ agent, org, key }) => ({ agent, org, key }),
  };
}

function removal(rows: readonly GroupRow[]): Statement {
  return {
    name: "board_gather_finish",
    text: "DELETE FROM runtime.board_groups WHERE group_id = ANY ($1::bigint[])",
    values: [rows.map(({ id }) => id)],
  };
}

async function correlationsOf(
  database: Database,
  groups: readonly GroupRow[],
): Promise<{ readonly org: string; readonly correlation: string }[]> {
  return database.query({
    name: "board_gather_correlations",
    text: `SELECT DISTINCT org_id AS org, correlation_id AS correlation FROM runtime.board_members
      WHERE group_id = ANY ($1::bigint[]) AND correlation_id IS NOT NULL`,
    values: [groups.map(({ id }) => id)],
  });
}

async function membersOf(database: Database, ids: readonly bigint[]): Promise<Map<bigint, Artifact[]>> {
  const rows = await database.query<{ id: bigint; artifact: Artifact }>({
    name: "board_gather_members",
    text: `SELECT group_id AS id, artifact FROM runtime.board_members WHERE group_id = ANY ($1::bigint[])
      ORDER BY group_id, place`,
    values: [ids],
  });
  const members = new Map<bigint, Artifact[]>();
  for (const { id, artifact } of rows) {
    const others = members.get(id);
    if (others) others.push(artifact);
    else members.set(id, [artifact]);
  }
  return members;
}

/** About the largest JSON of a batch, however few artifacts it has. */
export const MAX_BATCH_BYTES = 512 << 10;

/** Counts finished batches and joins. */
function groupsCounter({ telemetry }: Pick<Context, "telemetry">): Counter {
  return telemetry.meter.createCounter("khala_board_groups_total", {
    description: "Batches and joins that ended, by agent and outcome",
  });
}

/** The id of a group's task. An agent gathers an artifact once, so the first artifact identifies the group. */
export function gatheredId(agent: string, key: string, first: Pick<Artifact, "id" | "version">): string {
  return derivedId(first.id, `gathered:${first.id}:${first.version}:${agent}:${key}`);
}

/** The task of a complete group: a batch in order of arrival, a join in order of its types. */
function gatheredTask(agent: Agent, key: string, arrived: readonly Artifact[], now: number): Task {
  const types = agent.options.join?.types;
  const place = ({ type }: Artifact) => types?.indexOf(type) ?? 0;
  const artifacts = arrived.toSorted((a, b) => place(a) - place(b)) as [Artifact, ...Artifact[]];
  return {
    id: gatheredId(agent.name, key, artifacts[0]),
    agent: agent.name,
    artifacts,
    key,
    attempt: 1,
    created_at: new Date(now).toISOString(),
  };
}
