import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { AgentOfOrg } from "../model/counts.ts";
import type { Settlement } from "../model/task.ts";

/** Totals of an agent. */
export interface AgentTotals {
  readonly done: number;
  readonly retried: number;
  /** Published artifacts by type. */
  readonly published: ReadonlyMap<string, number>;
}

/** The totals of an agent, for the org if orgs were asked for. */
export type TotalsOf = (agent: string, org?: string) => AgentTotals;

/** The part of a settlement that is counted. */
export type Counted =
  | { readonly kind: Exclude<Settlement["kind"], "done"> }
  | { readonly kind: "done"; readonly outputs: readonly { readonly type: string }[] };

/** Totals of all servers since installation. */
export interface Totals {
  /** Counts a task that this process settled and its outputs; other servers see them after the next sync. */
  settled(of: AgentOfOrg, settlement: Counted): void;
  /** Adds this process's counts since the last call, and returns the totals of agents for these orgs; for all of them together unless set. */
  share(orgs?: readonly string[]): Promise<TotalsOf>;
  /** Whether there are counts that other servers do not see yet. */
  hasUnsaved(): boolean;
}

/** Types that are counted per agent and org between two reports: types may be made of payloads, and rows are kept for ever. */
const MAX_TYPES = 100;

interface Unsaved extends AgentOfOrg {
  done: number;
  retried: number;
  readonly published: Map<string, number>;
}

interface Addition {
  readonly number: number;
  readonly rows: readonly Unsaved[];
}

const NONE: AgentTotals = { done: 0, retried: 0, published: new Map() };

/** Opens the totals. One statement adds all counts since the last call, once however often it is retried. */
export function openTotals(
  database: Database,
  { clock, newId }: Pick<Context, "clock" | "newId">,
  agents: readonly string[],
): Totals {
  const server = newId();
  let unsaved = new Map<string, Unsaved>();
  /** Counts that were sent and may have been added although no answer arrived. */
  let adding: Addition | undefined;
  let number = 0;
  let sharing: Promise<TotalsOf> | undefined;

  function take(): Addition | undefined {
    if (unsaved.size === 0) return undefined;
    const rows = [...unsaved.values()];
    unsaved = new Map();
    return { number: ++number, rows };
  }

  async function share(orgs: readonly string[] | undefined): Promise<TotalsOf> {
    adding ??= take();
    const add = adding ? [addStatement(server, adding, new Date(clock.now()))] : [];
    const results = await database.transaction([...add, ...readStatements(agents, orgs)]);
    adding = undefined;
    // A transaction returns untyped rows; readStatements has the columns.
    const tasks = results.at(-2) as unknown as readonly TotalRow[];
    const outputs = results.at(-1) as unknown as readonly OutputRow[];
    const published = Map.groupBy(outputs, ({ agent, org_id }) => `${agent} ${org_id}`);
    const totals = new Map(
      tasks.map(({ agent, org_id, done, retried }): [string, AgentTotals] => {
        const key = `${agent} ${org_id}`;
        const types = (published.get(key) ?? []).map(({ type, published: n }) => [type, Number(n)] as const);
        return [key, { done: Number(done), retried: Number(retried), published: new Map(types) }];
      }),
    );
    return (agent, org = "") => totals.get(`${agent} ${org}`) ?? NONE;
  }

  return {
    settled({ agent, org }, settlement) {
      if (settlement.kind === "dead") return;
      const key = `${agent} ${org}`;
      const counts = unsaved.get(key) ?? { agent, org, done: 0, retried: 0, published: new Map() };
      unsaved.set(key, counts);
      if (settlement.kind !== "done") {
        counts.retried++;
        return;
      }
      counts.done++;
      const { published } = counts;
      for (const { type } of settlement.outputs)
        if (published.has(type) || published.size < MAX_TYPES)
          published.set(type, (published.get(type) ?? 0) + 1);
    },
    /** One at a time; concurrent callers wait. */
    share(orgs) {
      const then = () => share(orgs);
      const next = (sharing ?? Promise.resolve()).then(then, then);
      sharing = next;
      return next;
    },
    hasUnsaved: () => unsaved.size > 0 || adding !== undefined,
  };
}

interface TotalRow {
  readonly agent: string;
  readonly org_id: string;
  readonly done: string;
  readonly retried: string;
}

interface OutputRow {
  readonly agent: string;
  readonly org_id: string;
  readonly type: string;
  readonly published: string;
}

/** Reads the tasks, then the outputs. */
function readStatements(agents: readonly string[], orgs: readonly string[] | undefined): Statement[] {
  if (orgs)
    return [
      {
        name: "board_totals_of",
        text: `SELECT agent, org_id, done, retried FROM runtime.board_totals
          WHERE agent = ANY ($1::text[]) AND org_id = ANY ($2::text[])`,
        values: [agents, orgs],
      },
      {
        name: "board_outputs_of",
        text: `SELECT agent, org_id, type, published FROM runtime.board_outputs
          WHERE agent = ANY ($1::text[]) AND org_id = ANY ($2::text[])`,
        values: [agents, orgs],
      },
    ];
  return [
    {
      name: "board_totals",
      text: `SELECT agent, '' AS org_id, sum(done) AS done, sum(retried) AS retried FROM runtime.board_totals
        WHERE agent = ANY ($1::text[]) GROUP BY agent`,
      values: [agents],
    },
    {
      name: "board_outputs",
      text: `SELECT agent, '' AS org_id, type, sum(published) AS published FROM runtime.board_outputs
        WHERE agent = ANY ($1::text[]) GROUP BY agent, type`,
      values: [agents],
    },
  ];
}

/** Sorted, so that concurrent servers cannot deadlock. */
function addStatement(server: string, { number, rows }: Addition, at: Date): Statement {
  const outputs = rows.flatMap(({ agent, org, published }) =>
    [...published].map(([type, count]) => ({ agent, org, type, count })),
  );
  return {
    name: "board_totals_add",
    text: `WITH fresh AS (
        INSERT INTO runtime.board_totals_added AS t (server, number, added_at) VALUES ($1, $2, $3)
        ON CONFLICT (server) DO UPDATE SET number = excluded.number, added_at = excluded.added_at
          WHERE t.number < excluded.number
        RETURNING 1
      ), outputs AS (
        INSERT INTO runtime.board_outputs AS o (agent, org_id, type, published)
        SELECT u.agent, u.org, u.type, u.published FROM fresh
        CROSS JOIN unnest($8::text[], $9::text[], $10::text[], $11::bigint[]) AS u(agent, org, type, published)
        ORDER BY u.agent COLLATE "C", u.org COLLATE "C", u.type COLLATE "C"
        ON CONFLICT (agent, org_id, type) DO UPDATE SET published = o.published + excluded.published
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
      outputs.map(({ agent }) => agent),
      outputs.map(({ org }) => org),
      outputs.map(({ type }) => type),
      outputs.map(({ count }) => count),
    ],
  };
}
