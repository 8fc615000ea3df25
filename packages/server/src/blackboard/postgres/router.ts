import { runLoop, type Service, type Wake } from "../../kit/service.ts";
import type { Artifact } from "../model/artifact.ts";
import { type BoardParts, route, tellOfTasks } from "./board_parts.ts";
import { BY_INDEX, routeStatement } from "./statements.ts";

const AT_ONCE = 256;
/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_115;

/** Artifacts that wait for the router, in order. */
const UNROUTED = `
SELECT a.body FROM runtime.board_artifacts a WHERE a.routes IS NULL ORDER BY a.seq LIMIT $1`;

/** Routes what processes published that do not route themselves: one process at a time, in the order of publication. */
export function startRouter(parts: BoardParts, wake: Wake, pollMs: number): Service {
  const { database, context, options, lanes } = parts;
  return runLoop(context, "board router", {
    wake,
    idleMs: pollMs,
    async step() {
      const items = await database.interactive(async (tx) => {
        await tx.query(BY_INDEX);
        const [lock] = await tx.query<{ held: boolean }>({
          name: "board_router_lock",
          text: `SELECT EXISTS (SELECT FROM runtime.board_artifacts a WHERE a.routes IS NULL)
            AND pg_try_advisory_xact_lock($1) AS held`,
          values: [ADVISORY_LOCK],
        });
        if (!lock!.held) return [];
        const rows = await tx.query<{ body: string }>({
          name: "board_unrouted",
          text: UNROUTED,
          values: [AT_ONCE],
        });
        const routed = route(
          options,
          rows.map(({ body }) => JSON.parse(body) as Artifact),
        );
        if (routed.length > 0) await tx.query(routeStatement(routed, lanes, context.clock.now()));
        return routed;
      });
      tellOfTasks(parts, items);
      return items.length === AT_ONCE;
    },
  });
}
