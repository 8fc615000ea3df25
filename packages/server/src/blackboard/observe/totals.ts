import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { AgentOfOrg } from "../board.ts";
import type { Settlement } from "../model/task.ts";

/** Totals of an agent. */
export interface AgentTotals {
  readonly done: number;
  readonly retried: number;
}

/** The totals of an agent, for the org if orgs were asked for. */
export type TotalsOf = (agent: string, org?: string) => AgentTotals;

/** Totals of all servers since installation. */
export interface Totals {
  /** Counts a task that this process settled; other servers see it after the next sync. */
  settled(of: AgentOfOrg, kind: Settlement["kind"]): void;
  /** Adds this process's counts since the last call, and returns the totals of agents for these orgs; for all of them together unless set. */
  look(orgs?: readonly string[]): Promise<TotalsOf>;
  /** Whether there are counts that other servers do not see yet. */
  owes(): boolean;
}

interface Told {
  readonly number: number;
  readonly rows: readonly (AgentOfOrg & AgentTotals)[];
}

/** Opens the totals. One statement adds all counts since the last call, once however often it is retried. */
export function openTotals(
  database: Database,
  { clock, newId }: Pick<Context, "clock" | "newId">,
  agents: readonly string[],
): Totals {
  const server = newId();
  let owed = new Map<string, AgentOfOrg & { done: number; retried: number }>();
  /** Counts that were sent and may have been added although no answer arrived. */
  let telling: Told | undefined;
  let number = 0;
  let looking: Promise<TotalsOf> | undefined;

  function take(): Told | undefined {
    if (owed.size === 0) return undefined;
    const rows = [...owed.values()];
    owed = new Map();
    return { number: ++number, rows };
  }

  async function look(orgs: readonly string[] | undefined): Promise<TotalsOf> {
    telling ??= take();
    const read: Statement = orgs
      ? {
          name: "board_totals_of",
          text: `SELECT agent, org_id, done, retried FROM runtime.board_totals
            WHERE agent = ANY ($1::text[]) AND org_id = ANY ($2::text[])`,
          values: [agents, orgs],
        }
      : {
          name: "board_totals",
          text: `SELECT agent, '' AS org_id, sum(done) AS done, sum(retried) AS retried FROM runtime.board_totals
            WHERE agent = ANY ($1::text[]) GROUP BY agent`,
          values: [agents],
        };
    const tell = telling ? [tellStatement(server, telling, new Date(clock.now()))] : [];
    const rows = (await database.transaction([...tell, read])).at(-1)!;
    telling = undefined;
    const totals = new Map(
      rows.map(({ agent, org_id, done, retried }) => [
        `${agent} ${org_id}`,
        { done: Number(done), retried: Number(retried) },
      ]),
    );
    return (agent, org = "") => totals.get(`${agent} ${org}`) ?? { done: 0, retried: 0 };
  }

  return {
    settled({ agent, org }, kind) {
      if (kind === "dead") return;
      const key = `${agent} ${org}`;
      const counts = owed.get(key) ?? { agent, org, done: 0, retried: 0 };
      owed.set(key, counts);
      if (kind === "done") counts.done++;
      else counts.retried++;
    },
    /** One at a time; concurrent callers wait. */
    look(orgs) {
      const then = () => look(orgs);
      const next = (looking ?? Promise.resolve()).then(then, then);
      looking = next;
      return next;
    },
    owes: () => owed.size > 0 || telling !== undefined,
  };
}

/** Sorted, so that concurrent servers cannot deadlock. */
function tellStatement(server: string, { number, rows }: Told, at: Date): Statement {
  return {
    name: "board_totals_tell",
    text: `WITH fresh AS (
        INSERT INTO runtime.board_totals_told AS t (server, number, told_at) VALUES ($1, $2, $3)
        ON CONFLICT (server) DO UPDATE SET number = excluded.number, told_at = excluded.told_at
          WHERE t.number < excluded.number
        RETURNING 1
      )
      INSERT INTO runtime.board_totals AS a (agent, org_id, done, retried)
      SELECT u.agent, u.org, u.done, u.retried FROM fresh
      CROSS JOIN unnest($4::text[], $5::text[], $6::bigint[], $7::bigint[]) AS u(agent, org, done, retried)
      ORDER BY u.agent COLLATE "C", u.org COLLATE "C"
      ON CONFLICT (agent, org_id) DO UPDATE SET done = a.done + excluded.done, retried = a.retried + excluded.retried`,
    values: [
      server,
      number,
      at,
      rows.map(({ agent }) => agent),
      rows.map(({ org }) => org),
      rows.map(({ done }) => done),
      rows.map(({ retried }) => retried),
    ],
  };
}
