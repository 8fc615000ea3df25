import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { sha256 } from "../../kit/hash.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { BoardAgent, BoardOptions } from "../board.ts";
import { groupsCounter, MAX_BATCH_BYTES } from "../gather_task.ts";
import { Alarm } from "./alarm.ts";
import { arrayText } from "./arrays.ts";
import { correlationsText } from "./arrivals.ts";
import { formStatement, type Gathered, type Member, pack } from "./batch_tasks.ts";
import type { Lanes } from "./lanes.ts";

interface GroupRow {
  readonly seq?: bigint;
  readonly org: string;
  readonly key: string;
  /** These three are lists with commas: many times cheaper to read than arrays. */
  readonly ids: string;
  readonly versions: string;
  readonly sizes: string;
  readonly correlations: readonly (string | null)[] | null;
  readonly arrived: bigint;
}

/** What making tasks of an agent's batches needs. */
export interface BatchesParts {
  readonly database: Database;
  readonly context: Context;
  readonly lanes: Lanes;
  readonly goesAlone: NonNullable<BoardOptions["goesAlone"]>;
  readonly pollMs: number;
  /** Batches of this agent are tasks now. */
  formed(agent: string): void;
}

/** Makes tasks of what arrives for one agent. */
export interface Batches extends Service {
  wake(): void;
}

/** Rows and members that are looked at together. */
const MOST_ROWS = 500;
const MOST_MEMBERS = 10_000;
const MOST_OVERDUE = 500;
/** Any constant will do, as long as every process uses the same. */
const ADVISORY_LOCK = 7_240_116;

const COLUMNS = `org_id AS org, key, array_to_string(ids, ',') AS ids, array_to_string(versions, ',') AS versions,
  array_to_string(sizes, ',') AS sizes, correlations, arrived_at AS arrived`;
/** Whether there is something to do, and nobody else is at it: agent, and since when what came is overdue. */
const LOCK = `
SELECT (EXISTS (SELECT FROM runtime.board_arrivals r WHERE r.agent = $1)
    OR EXISTS (SELECT FROM runtime.board_batches b WHERE b.agent = $1 AND b.arrived_at <= $2::bigint))
  AND pg_try_advisory_xact_lock(${ADVISORY_LOCK}, hashtext($1)) AS held`;
/** The oldest arrivals of an agent, with not many more than so many members. */
const TAKE_ARRIVALS = `
DELETE FROM runtime.board_arrivals r USING (
  SELECT o.seq FROM (
    SELECT o.seq, sum(o.members) OVER (ORDER BY o.seq) - o.members AS before FROM (
      SELECT o.seq, o.members FROM runtime.board_arrivals o WHERE o.agent = $1 ORDER BY o.seq LIMIT ${MOST_ROWS}
    ) o
  ) o WHERE o.before < ${MOST_MEMBERS} OFFSET 0
) o WHERE r.agent = $1 AND r.seq = o.seq RETURNING r.seq, ${COLUMNS}`;
/** The open batches of an agent that are overdue, and those of the given orgs and hashes of keys. */
const TAKE_OPEN = `
DELETE FROM runtime.board_batches b USING (
  SELECT u.org COLLATE "C" AS org, u.hash COLLATE "C" AS hash FROM unnest($3::text[], $4::text[]) AS u(org, hash)
  UNION
  (SELECT o.org_id, o.key_hash FROM runtime.board_batches o WHERE o.agent = $1 AND o.arrived_at <= $2::bigint
   ORDER BY o.arrived_at LIMIT ${MOST_OVERDUE})
) u WHERE b.agent = $1 AND b.org_id = u.org AND b.key_hash = u.hash RETURNING ${COLUMNS}`;
const KEEP = `
INSERT INTO runtime.board_batches (agent, org_id, key_hash, key, ids, versions, sizes, correlations, arrived_at)
SELECT $1, u.org, u.hash, u.key, u.ids::uuid[], u.versions::int[], u.sizes::int[], u.correlations::text[], u.arrived
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[])
  AS u(org, hash, key, ids, versions, sizes, correlations, arrived)`;
const OLDEST = "SELECT min(b.arrived_at) AS arrived FROM runtime.board_batches b WHERE b.agent = $1";

/**
 * Starts to make tasks of what arrives for an agent, and of what is overdue: one process at a time for all servers. What it
 * takes away and what it makes are one transaction; it holds nothing that those who publish or settle wait for.
 */
export function startBatches(
  { agent, batch }: BoardAgent & { readonly batch: NonNullable<BoardAgent["batch"]> },
  { database, context, lanes, goesAlone, pollMs, formed }: BatchesParts,
): Batches {
  const { clock } = context;
  const wake = new Wake();
  const due = new Alarm(clock, () => wake.wake());
  const sent = groupsCounter(context);

  /** The members of each batch, those first that have waited. */
  function groupsOf(rows: readonly GroupRow[]): Gathered[] {
    const groups = new Map<string, { org: string; key: string; hash: string; members: Member[] }>();
    for (const { org, key, correlations, arrived, ...lists } of rows) {
      const [ids, versions, sizes] = [lists.ids, lists.versions, lists.sizes].map((list) => list.split(","));
      const arrivedAt = Number(arrived);
      const hash = sha256(key);
      const name = `${hash} ${org}`;
      let group = groups.get(name);
      if (!group) {
        group = { org, key, hash, members: [] };
        groups.set(name, group);
      }
      for (const [i, id] of ids!.entries()) {
        const version = Number(versions![i]);
        const bytes = Number(sizes![i]);
        group.members.push({ id, version, bytes, correlationId: correlations?.[i] ?? null, arrivedAt });
      }
    }
    return [...groups.values()];
  }

  const aloneHow = (org: string, { correlationId, arrivedAt }: Member) =>
    goesAlone({ agent, org, correlationId: correlationId ?? undefined, arrivedAt });

  /** Answers how many arrivals it looked at, and how many tasks it made; undefined if there was nothing for it. */
  function form(): Promise<
    { readonly looked: number; readonly batches: number; readonly alone: number } | undefined
  > {
    return database.interactive(async (tx) => {
      const now = clock.now();
      const overdue = now - batch.timeoutMs;
      const [lock] = await tx.query<{ held: boolean }>({
        name: "board_batches_lock",
        text: LOCK,
        values: [agent, overdue],
      });
      if (!lock!.held) return undefined;
      const arrivals = await tx.query<GroupRow>({
        name: "board_arrivals_take",
        text: TAKE_ARRIVALS,
        values: [agent],
      });
      arrivals.sort((a, b) => (a.seq! < b.seq! ? -1 : 1));
      const fresh = groupsOf(arrivals);
      const open = await tx.query<GroupRow>({
        name: "board_batches_take",
        text: TAKE_OPEN,
        values: [agent, overdue, fresh.map(({ org }) => org), fresh.map(({ hash }) => hash)],
      });
      const packed = pack(groupsOf([...open, ...arrivals]), {
        size: batch.size,
        maxBytes: MAX_BATCH_BYTES,
        overdue,
        aloneHow,
      });
      const { batches, alone, kept } = packed;
      if (kept.length > 0)
        await tx.query({
          name: "board_batches_keep",
          text: KEEP,
          values: [
            agent,
            kept.map(({ org }) => org),
            kept.map(({ hash }) => hash),
            kept.map(({ key }) => key),
            kept.map(({ members }) => arrayText(members.map(({ id }) => id))),
            kept.map(({ members }) => arrayText(members.map(({ version }) => version))),
            kept.map(({ members }) => arrayText(members.map(({ bytes }) => bytes))),
            kept.map(({ members }) => correlationsText(members.map(({ correlationId }) => correlationId))),
            kept.map(({ members }) => members[0]!.arrivedAt),
          ],
        });
      if (batches.length + alone.length > 0) await tx.query(formStatement(agent, packed, lanes, now));
      return { looked: arrivals.length, batches: batches.length, alone: alone.length };
    });
  }

  const loop = runLoop(context, `board batches ${agent}`, {
    wake,
    idleMs: pollMs,
    async step() {
      const made = await form();
      if (made && made.batches + made.alone > 0) {
        sent.add(made.batches, { agent, outcome: "sent" });
        formed(agent);
      }
      const [oldest] = await database.query<{ arrived: bigint | null }>({
        name: "board_batches_oldest",
        text: OLDEST,
        values: [agent],
      });
      if (oldest?.arrived != null) due.in(Number(oldest.arrived) + batch.timeoutMs - clock.now());
      return made !== undefined && made.looked > 0;
    },
  });
  return {
    wake: () => wake.wake(),
    async stop() {
      due.stop();
      await loop.stop();
    },
  };
}
