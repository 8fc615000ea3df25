import { runLoop, type Service, type Wake } from "../../kit/service.ts";
import type { Routed } from "../board.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Desk } from "./publish.ts";
import { routeStatement } from "./statements.ts";

const AT_ONCE = 256;
/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_115;

/** Artifacts that wait for the router, in order. */
const UNROUTED = `
SELECT u.seq, a.body FROM (SELECT u.* FROM runtime.board_unrouted u ORDER BY u.seq LIMIT $1) u
CROSS JOIN LATERAL (
  SELECT a.body FROM runtime.board_artifacts a WHERE a.id = u.id AND a.version = u.version OFFSET 0
) a ORDER BY u.seq`;

/** Routes what processes published that do not route themselves: one process at a time, in the order of publication. */
export function startRouter(desk: Desk, wake: Wake, pollMs: number): Service {
  const { database, context, options, lanes, arrivals } = desk;
  return runLoop(context, "board router", {
    wake,
    idleMs: pollMs,
    async step() {
      const items = await database.interactive(async (tx) => {
        const [lock] = await tx.query<{ held: boolean }>({
          name: "board_router_lock",
          text: "SELECT EXISTS (SELECT FROM runtime.board_unrouted) AND pg_try_advisory_xact_lock($1) AS held",
          values: [ADVISORY_LOCK],
        });
        if (!lock!.held) return [];
        const rows = await tx.query<{ seq: bigint; body: string }>({
          name: "board_unrouted",
          text: UNROUTED,
          values: [AT_ONCE],
        });
        const routings = rows.map(({ body }): Routed => {
          const artifact = JSON.parse(body) as Artifact;
          return { artifact, routing: options.route(artifact) };
        });
        if (rows.length > 0) {
          const seqs = rows.map(({ seq }) => seq);
          const now = context.clock.now();
          await tx.query(routeStatement(seqs, routings, { lanes, arrivals, now }));
          const bodies = rows.map(({ body }) => body);
          for (const statement of arrivals.statements(routings, bodies, now)) await tx.query(statement);
        }
        return routings;
      });
      const agents = new Set<string>();
      for (const { artifact, routing } of items) {
        options.observer.routed(artifact, routing.tasks);
        for (const { agent } of routing.tasks) agents.add(agent);
      }
      if (agents.size > 0) desk.created(agents);
      return items.length === AT_ONCE;
    },
  });
}
