import type { Database, Row, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";

/** Counts running tasks of each agent across servers, for a backend that only knows those of its own process. */
export interface Running {
  /** Reports this process's running tasks, and returns the totals of all servers. */
  share(own: ReadonlyMap<string, number>): Promise<ReadonlyMap<string, number>>;
  /** Removes this process's report. */
  stop(): Promise<void>;
}

/** Unchanged figures are reported again after this time. A server with running tasks reports at least once a minute. */
const AGAIN_MS = 30_000;
/** A server that has not reported for this long counts as lost. */
const GONE_S = 150;

const REPORT = `INSERT INTO runtime.board_running AS r (server, agent, running)
SELECT $1, u.agent, u.running FROM unnest($2::text[], $3::int[]) AS u(agent, running)
ON CONFLICT (server, agent) DO UPDATE SET running = excluded.running, reported_at = now()`;
const OTHERS = `SELECT agent, sum(running)::int AS running FROM runtime.board_running
WHERE server <> $1 AND agent = ANY ($2::text[]) AND running > 0 AND reported_at > now() - $3 * interval '1 s' GROUP BY agent`;

/** Opens the counts. Each process has an id of its own. */
export function openRunning(database: Database, { clock, newId }: Pick<Context, "clock" | "newId">): Running {
  const server = newId();
  const reported = new Map<string, { readonly running: number; readonly at: number }>();
  return {
    async share(own) {
      const now = clock.now();
      const changed = [...own].filter(([agent, running]) => {
        const last = reported.get(agent);
        return running !== (last?.running ?? 0) || (running > 0 && Math.abs(now - last!.at) >= AGAIN_MS);
      });
      const report: Statement = {
        name: "board_running_report",
        text: REPORT,
        values: [server, changed.map(([agent]) => agent), changed.map(([, running]) => running)],
      };
      const others: Statement = {
        name: "board_running_others",
        text: OTHERS,
        values: [server, [...own.keys()], GONE_S],
      };
      const rows = (await database.transaction(changed.length > 0 ? [report, others] : [others])).at(-1)!;
      for (const [agent, running] of changed) reported.set(agent, { running, at: now });
      const all = new Map(own);
      for (const { agent, running } of rows as (Row & { agent: string; running: number })[])
        all.set(agent, (own.get(agent) ?? 0) + running);
      return all;
    },
    async stop() {
      if (reported.size === 0) return;
      await database.query({
        name: "board_running_over",
        text: "DELETE FROM runtime.board_running WHERE server = $1",
        values: [server],
      });
    },
  };
}
