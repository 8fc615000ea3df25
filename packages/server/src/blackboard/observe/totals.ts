import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { Settlement } from "../model/task.ts";

/** Totals of an agent. */
export interface AgentTotals {
  readonly done: number;
  readonly retried: number;
}

/** Totals of all servers since installation. */
export interface Totals {
  /** Counts a task that this process settled; other servers see it after the next sync. */
  settled(agent: string, kind: Settlement["kind"]): void;
  /** Adds this process's counts since the last call, and returns the totals by agent. */
  look(): Promise<ReadonlyMap<string, AgentTotals>>;
  /** Whether there are counts that other servers do not see yet. */
  owes(): boolean;
}

interface Told {
  readonly number: number;
  readonly rows: readonly (readonly [agent: string, done: number, retried: number])[];
}

/** Opens the totals. One statement adds all counts since the last call, once however often it is retried. */
export function openTotals(
  database: Database,
  { clock, newId }: Pick<Context, "clock" | "newId">,
  agents: readonly string[],
): Totals {
  const server = newId();
  let owed = new Map<string, { done: number; retried: number }>();
  /** Counts that were sent and may have been added although no answer arrived. */
  let telling: Told | undefined;
  let number = 0;
  let looking: Promise<ReadonlyMap<string, AgentTotals>> | undefined;

  function take(): Told | undefined {
    if (owed.size === 0) return undefined;
    const rows = [...owed].map(([agent, { done, retried }]) => [agent, done, retried] as const);
    owed = new Map();
    return { number: ++number, rows };
  }

  async function look(): Promise<ReadonlyMap<string, AgentTotals>> {
    telling ??= take();
    const read: Statement = {
      name: "board_totals",
      text: "SELECT agent, done, retried FROM runtime.board_totals WHERE agent = ANY ($1::text[])",
      values: [agents],
    };
    const tell = telling ? [tellStatement(server, telling, new Date(clock.now()))] : [];
    const rows = (await database.transaction([...tell, read])).at(-1)!;
    telling = undefined;
    return new Map(
      rows.map(({ agent, done, retried }) => [
        agent as string,
        { done: Number(done), retried: Number(retried) },
      ]),
    );
  }

  return {
    settled(agent, kind) {
      if (kind === "dead") return;
      const counts = owed.get(agent) ?? { done: 0, retried: 0 };
      owed.set(agent, counts);
      if (kind === "done") counts.done++;
      else counts.retried++;
    },
    /** One at a time; concurrent callers wait. */
    look() {
      const next = (looking ?? Promise.resolve()).then(look, look);
      looking = next;
      return next;
    },
    owes: () => owed.size > 0 || telling !== undefined,
  };
}

/** Sorted by agent, so that concurrent servers cannot deadlock. */
function tellStatement(server: string, { number, rows }: Told, at: Date): Statement {
  return {
    name: "board_totals_tell",
    text: `WITH fresh AS (
        INSERT INTO runtime.board_totals_told AS t (server, number, told_at) VALUES ($1, $2, $3)
        ON CONFLICT (server) DO UPDATE SET number = excluded.number, told_at = excluded.told_at
          WHERE t.number < excluded.number
        RETURNING 1
      )
      INSERT INTO runtime.board_totals AS a (agent, done, retried)
      SELECT u.agent, u.done, u.retried FROM fresh
      CROSS JOIN unnest($4::text[], $5::bigint[], $6::bigint[]) AS u(agent, done, retried)
      ORDER BY u.agent COLLATE "C"
      ON CONFLICT (agent) DO UPDATE SET done = a.done + excluded.done, retried = a.retried + excluded.retried`,
    values: [
      server,
      number,
      at,
      rows.map(([agent]) => agent),
      rows.map(([, done]) => done),
      rows.map(([, , retried]) => retried),
    ],
  };
}
