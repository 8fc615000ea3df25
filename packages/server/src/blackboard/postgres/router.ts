import { isItemFault } from "../../database/database.ts";
import { runLoop, type Service, type Wake } from "../../kit/service.ts";
import type { Artifact } from "../model/artifact.ts";
import { setAsideStatement } from "../observe/set_aside_items.ts";
import { type BoardParts, route, tellOfTasks } from "./board_parts.ts";
import { BY_INDEX, routeStatement } from "./statements.ts";

const AT_ONCE = 256;
/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_115;
const LOOP = "board router";

/** Artifacts that wait for the router, in order. */
const UNROUTED = `
SELECT a.org_id AS org, a.id, a.version, a.correlation_id AS "correlationId", a.body
FROM runtime.board_artifacts a WHERE a.routes IS NULL ORDER BY a.seq LIMIT $1`;

interface UnroutedRow {
  readonly org: string;
  readonly id: string;
  readonly version: number;
  readonly correlationId: string | null;
  readonly body: string;
}

/**
 * Routes what processes published that do not route themselves: one process at a time, in the order of publication. A batch
 * that fails is halved until the artifact at fault is alone; that one is set aside, and the rest is routed.
 */
export function startRouter(parts: BoardParts, wake: Wake, pollMs: number): Service {
  const { database, context, options, lanes } = parts;
  let atOnce = AT_ONCE;

  return runLoop(context, LOOP, {
    wake,
    idleMs: pollMs,
    async step() {
      let rows: readonly UnroutedRow[] = [];
      try {
        const items = await database.interactive(async (tx) => {
          await tx.query(BY_INDEX);
          const [lock] = await tx.query<{ held: boolean }>({
            name: "board_router_lock",
            text: `SELECT EXISTS (SELECT FROM runtime.board_artifacts a WHERE a.routes IS NULL)
              AND pg_try_advisory_xact_lock($1) AS held`,
            values: [ADVISORY_LOCK],
          });
          if (!lock!.held) return [];
          rows = await tx.query<UnroutedRow>({ name: "board_unrouted", text: UNROUTED, values: [atOnce] });
          const routed = route(
            options,
            rows.map(({ body }) => JSON.parse(body) as Artifact),
          );
          if (routed.length > 0) await tx.query(routeStatement(routed, lanes, context.clock.now()));
          return routed;
        });
        tellOfTasks(parts, items);
      } catch (error) {
        if (rows.length === 0 || !isItemFault(error)) throw error;
        if (rows.length === 1) await setAside(rows[0]!, error);
        else atOnce = rows.length >> 1;
        return true;
      }
      const more = rows.length === atOnce;
      atOnce = Math.min(AT_ONCE, atOnce * 2);
      return more;
    },
  });

  /** Its routes are empty from now on: it waits for the router no more, until it is retried. */
  async function setAside({ org, id, version, correlationId }: UnroutedRow, error: unknown): Promise<void> {
    const kept = {
      name: "board_unroutable",
      text: `UPDATE runtime.board_artifacts a SET routes = '{}'
        WHERE a.org_id = $1 AND a.id = $2 AND a.version = $3 AND a.routes IS NULL`,
      values: [org, id, version],
    };
    const body = JSON.stringify({ id, version });
    const item = { loop: LOOP, kind: "route", ref: `${id}:${version}`, org, correlationId, body } as const;
    await database.transaction([kept, setAsideStatement(item, error)]);
    options.refused?.({ org, id, version }, error);
  }
}
