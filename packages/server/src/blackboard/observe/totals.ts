import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import type { Settlement } from "../model/task.ts";

/** What was done of an agent's tasks. */
export interface AgentTotals {
  readonly done: number;
  readonly retried: number;
}

/** What all servers have done of their agents' tasks, ever. */
export interface Totals {
  /** This process has settled a task; the others learn of it with the next look. */
  settled(agent: string, kind: Settlement["kind"]): void;
  /** Adds what this process has done since its last look, and answers what all have done, by agent. */
  look(): Promise<ReadonlyMap<string, AgentTotals>>;
  /** Whether there is something that the others do not know. */
  owes(): boolean;
}

interface Told {
  readonly number: number;
  readonly rows: readonly (readonly [agent: string, done: number, retried: number])[];
}

/** Opens the totals: one statement for all tasks since the last look, added once however often it must be repeated. */
export function openTotals(
  database: Database,
  { clock, newId }: Pick<Context, "clock" | "newId">,
  agents: readonly string[],
): Totals {
  const server = newId();
  let owed = new Map<string, { done: number; retried: number }>();
  /** What was sent, and may have been added although there was no answer. */
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
    /** One at a time: who asks meanwhile is answered after it. */
    look() {
      const next = (looking ?? Promise.resolve()).then(look, look);
      looking = next;
      return next;
    },
    owes: () => owed.size > 0 || telling !== undefined,
  };
}

/** Agents in one order: servers that add at the same time wait for each other, and never in a circle. */
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
