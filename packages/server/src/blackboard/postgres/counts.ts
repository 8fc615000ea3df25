import type { Database } from "../../database/database.ts";
import type { Board } from "../board.ts";
import type { BoardOptions } from "../board_options.ts";
import type { AgentCounts, AgentOfOrg } from "../model/counts.ts";
import { BY_INDEX, TASKS } from "./statements.ts";

/** Open tasks and dead letters of agents, each up to a number. Claimed tasks are those of each org that were due first. */
const COUNTS = `
SELECT u.agent, o.open, r.running, d.dead FROM unnest($1::text[]) WITH ORDINALITY AS u(agent, n)
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM (SELECT FROM runtime.board_tasks t WHERE t.agent = u.agent LIMIT $2) t
) o
CROSS JOIN LATERAL (
  WITH RECURSIVE orgs AS (
    SELECT ''::text COLLATE "C" AS org
    UNION ALL
    SELECT (
      SELECT t.org_id FROM runtime.board_tasks t WHERE t.agent = u.agent AND t.ready AND t.org_id > o.org
      ORDER BY t.org_id LIMIT 1
    ) FROM orgs o WHERE o.org IS NOT NULL
  )
  SELECT count(*) FILTER (WHERE t.claimed_by IS NOT NULL) AS running FROM orgs o CROSS JOIN LATERAL (
    SELECT t.claimed_by FROM runtime.board_tasks t
    WHERE t.agent = u.agent AND t.org_id = o.org AND t.ready ORDER BY t.due_at, t.seq LIMIT $2
  ) t
) r
CROSS JOIN LATERAL (
  SELECT count(*) AS dead FROM (
    SELECT FROM runtime.board_dead_letters d WHERE d.agent = u.agent AND d.replay_id IS NULL LIMIT $2
  ) d
) d ORDER BY u.n`;

/** The same for agents and orgs, in their order. */
const COUNTS_OF = `
SELECT o.open, r.running, d.dead FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(agent, org, n)
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM (
    SELECT FROM runtime.board_tasks t WHERE t.agent = u.agent AND t.org_id = u.org LIMIT $3
  ) t
) o
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE t.claimed_by IS NOT NULL) AS running FROM (
    SELECT t.claimed_by FROM runtime.board_tasks t
    WHERE t.agent = u.agent AND t.org_id = u.org AND t.ready ORDER BY t.due_at, t.seq LIMIT $3
  ) t
) r
CROSS JOIN LATERAL (
  SELECT count(*) AS dead FROM (
    SELECT FROM runtime.board_dead_letters d
    WHERE d.agent = u.agent AND d.org_id = u.org AND d.replay_id IS NULL LIMIT $3
  ) d
) d ORDER BY u.n`;

/** Open tasks of an org: agents, the org, how many are counted of each. */
const WAITING = `
SELECT u.agent, o.open FROM unnest($1::text[]) AS u(agent)
CROSS JOIN LATERAL (
  SELECT count(*) AS open FROM (
    SELECT FROM runtime.board_tasks t WHERE t.agent = u.agent AND t.org_id = $2 LIMIT $3
  ) t
) o`;

type Counted = Readonly<Record<"open" | "running" | "dead", bigint>>;

/** The counted rows, and the limit. */
export interface CountsOptions extends Pick<BoardOptions, "agents"> {
  /** Up to here tasks of an agent are counted one by one: more are estimated. */
  readonly countUpTo: number;
}

/** Counts the work of agents. */
export function openCounts(
  database: Database,
  { agents, countUpTo }: CountsOptions,
): Pick<Board, "counts" | "countsOf" | "lag" | "waiting"> {
  const names = agents.map(({ agent }) => agent);

  async function count<T>(statement: { name: string; text: string; values: unknown[] }): Promise<T[]> {
    const [, rows] = await database.transaction([BY_INDEX, statement]);
    return rows as T[];
  }

  /** The number of rows the planner expects, which is as good as the statistics of the table. */
  async function estimate(from: string, values: readonly unknown[] = []): Promise<number> {
    const [row] = await database.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>({
      text: `EXPLAIN (FORMAT JSON) SELECT FROM ${from}`,
      values: [...values],
    });
    return row!["QUERY PLAN"][0].Plan["Plan Rows"];
  }

  async function exactOrEstimated(agent: string, org: string | null, counted: Counted): Promise<AgentCounts> {
    const running = Number(counted.running);
    let open = Number(counted.open);
    if (open >= countUpTo) {
      const ofOrg = org === null ? "" : " AND t.org_id = $2";
      const values = org === null ? [agent] : [agent, org];
      open = Math.max(open, await estimate(`runtime.board_tasks t WHERE t.agent = $1${ofOrg}`, values));
    }
    return { agent, waiting: Math.max(0, open - running), running, dead: Number(counted.dead) };
  }

  async function counts(): Promise<AgentCounts[]> {
    const values = [names, countUpTo];
    const rows = await count<{ agent: string } & Counted>({ name: "board_counts", text: COUNTS, values });
    return Promise.all(rows.map(({ agent, ...counted }) => exactOrEstimated(agent, null, counted)));
  }

  async function countsOf(of: readonly AgentOfOrg[]): Promise<AgentCounts[]> {
    const values = [of.map(({ agent }) => agent), of.map(({ org }) => org), countUpTo];
    const rows = await count<Counted>({ name: "board_counts_of", text: COUNTS_OF, values });
    return Promise.all(rows.map((counted, i) => exactOrEstimated(of[i]!.agent, of[i]!.org, counted)));
  }

  return {
    counts,
    countsOf,
    async waiting(org) {
      const rows = await count<{ agent: string; open: bigint }>({
        name: "board_waiting",
        text: WAITING,
        values: [names, org, countUpTo],
      });
      return new Map(rows.map(({ agent, open }) => [agent, Number(open)]));
    },
    async lag(org) {
      const counted = await (org === undefined ? counts() : countsOf(names.map((agent) => ({ agent, org }))));
      return counted.map(({ agent, waiting, running }) => {
        const lag = String(waiting + running);
        return { reader: agent, topic: TASKS, partition: 0, lag, lag_high: lag };
      });
    },
  };
}
