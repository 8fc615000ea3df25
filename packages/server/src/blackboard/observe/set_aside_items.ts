import type { SetAsideItemJson } from "@khala/contracts/ops/v1";
import { notFound, orgOf } from "../../access/access.ts";
import type { Caller } from "../../access/viewer.ts";
import type { Database, Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { sha256 } from "../../kit/hash.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";

/** An item that a loop could not process for good. */
export interface RefusedItem {
  readonly loop: string;
  readonly kind: "task" | "artifact" | "failing";
  /** Identifies it within its org. */
  readonly ref: string;
  readonly org: string;
  readonly correlationId: string | null;
  /** The id of the task or the artifact, or the name of what is failing. */
  readonly item: string;
  /** Of a task; otherwise empty. */
  readonly agent: string;
  /** The task or the artifact as JSON. */
  readonly body: string | null;
}

/** An item that a loop goes on trying. */
export interface FailingItem {
  readonly loop: string;
  readonly org: string;
  /** Identifies it within its loop and org. */
  readonly name: string;
}

/** The stored items that were set aside for good: each waits for an operator to retry or discard it. */
export interface SetAsideItems extends Service {
  /** The items of the caller's org, or of all for the platform; oldest first. */
  list(
    caller: Caller,
    query: { readonly after: string; readonly limit: number },
  ): Promise<SetAsideItemJson[]>;
  /** Gives an item back to the loop that could not process it. */
  retry(caller: Caller, id: string): Promise<void>;
  discard(caller: Caller, id: string): Promise<void>;
  /** By loop, as of the last count. Exact up to 10,000. */
  counts(): ReadonlyMap<string, number>;
  /** Items were added: counts again soon. */
  recount(): void;
  /** Lists an item that has failed again, until it is recovered or not heard of for a while. */
  failing(item: FailingItem, error: unknown): void;
  recovered(item: FailingItem): void;
}

/** An item without a failure for this long counts as removed. Longer than any delay before the next attempt. */
export const FORGET_MS = 300_000;

const MAX_ERROR = 2_000;
const COUNTED = 10_000;
const COUNT_EVERY_MS = 5_000;
const ID = /^\d{1,18}$/;

/** Stores an item. The caller removes it from its loop in the same transaction. */
export function setAsideStatement(item: RefusedItem, error: unknown): Statement {
  return {
    name: "board_set_aside",
    text: `INSERT INTO runtime.board_set_aside (loop, kind, ref, org_id, correlation_id, item, agent, body, error)
      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
      ON CONFLICT (ref, org_id, kind) DO UPDATE SET body = excluded.body, error = excluded.error, failed_at = now()`,
    values: [
      item.loop,
      item.kind,
      item.ref,
      item.org,
      item.correlationId,
      item.item,
      item.agent,
      item.body,
      errorText(error),
    ],
  };
}

/** Names may be longer than an index takes. */
function refOf(loop: string, name: string): string {
  return sha256(`${loop} ${name}`);
}

/** The error as the database can store it. */
function errorText(error: unknown): string {
  return (error as Error).message.slice(0, MAX_ERROR).toWellFormed().replaceAll("\0", "\uFFFD");
}

/** Opens the stored items. */
export function openSetAsideItems(database: Database, context: Context): SetAsideItems {
  const wake = new Wake();
  let counts: ReadonlyMap<string, number> = new Map();
  const counting = runLoop(context, "board set aside", {
    wake,
    idleMs: COUNT_EVERY_MS,
    async step() {
      const rows = await database.query<{ loop: string; count: number }>({
        name: "board_set_aside_count",
        text: `SELECT loop, count(*)::int AS count FROM (
            SELECT loop FROM runtime.board_set_aside WHERE kind <> 'failing' LIMIT ${COUNTED}
          ) counted GROUP BY loop`,
      });
      counts = new Map(rows.map(({ loop, count }) => [loop, count]));
      return false;
    },
  });

  /** Runs a statement that returns the item if it is the caller's. */
  async function change(caller: Caller, id: string, name: string, text: string): Promise<void> {
    const values = [id, orgOf(caller, "set_aside.control") ?? null];
    const rows = ID.test(id) ? await database.query({ name, text, values }) : [];
    if (rows.length === 0) throw notFound("set-aside item", id);
    wake.wake();
  }

  let last = Promise.resolve();
  /** In order: an item that has recovered must not be listed by an older failure. */
  function write(statement: Statement): void {
    last = last
      .then(() => database.query(statement))
      .then(
        () => {},
        (error: Error) => context.log.warn({ err: error.message }, "could not list a failing item"),
      );
  }

  return {
    counts: () => counts,
    recount: () => wake.wake(),
    async stop() {
      await counting.stop();
      await last;
    },

    failing({ loop, org, name }, error) {
      const item = name.toWellFormed().replaceAll("\0", "\uFFFD");
      const none = { correlationId: null, agent: "", body: null };
      write(setAsideStatement({ loop, kind: "failing", ref: refOf(loop, name), org, item, ...none }, error));
    },
    recovered: ({ loop, org, name }) =>
      write({
        name: "board_set_aside_recovered",
        text: "DELETE FROM runtime.board_set_aside WHERE kind = 'failing' AND ref = $1 AND org_id = $2",
        values: [refOf(loop, name), org],
      }),

    list: (caller, { after, limit }) =>
      database.query<SetAsideItemJson>({
        name: "board_set_aside_list",
        text: `SELECT s.item_id::text AS id, s.org_id, s.loop, s.kind, s.item, s.agent,
            coalesce(s.correlation_id, '') AS correlation_id, s.error,
            to_char(s.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS failed_at
          FROM runtime.board_set_aside s WHERE ($1::text IS NULL OR s.org_id = $1) AND s.item_id > $2
            AND (s.kind <> 'failing' OR s.failed_at > now() - $4 * interval '1 ms')
          ORDER BY s.item_id LIMIT $3`,
        values: [orgOf(caller, "set_aside.read") ?? null, ID.test(after) ? after : "0", limit, FORGET_MS],
      }),

    retry: (caller, id) =>
      change(
        caller,
        id,
        "board_set_aside_retry",
        `WITH item AS (
            DELETE FROM runtime.board_set_aside s WHERE s.item_id = $1 AND ($2::text IS NULL OR s.org_id = $2)
              AND s.kind <> 'failing' RETURNING s.*
          ), sent AS (
            INSERT INTO runtime.board_outbox (kind, ref, org_id, correlation_id, body, due_at)
            SELECT i.kind, i.ref, i.org_id, i.correlation_id, i.body, now() FROM item i
            ON CONFLICT DO NOTHING
          )
          SELECT 1 FROM item`,
      ),

    discard: (caller, id) =>
      change(
        caller,
        id,
        "board_set_aside_discard",
        `DELETE FROM runtime.board_set_aside s WHERE s.item_id = $1 AND ($2::text IS NULL OR s.org_id = $2)
          AND s.kind <> 'failing' RETURNING 1`,
      ),
  };
}
