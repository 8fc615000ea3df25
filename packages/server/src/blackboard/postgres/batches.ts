import type { Database, Statement } from "../../database/database.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { BoardAgent, BoardOptions } from "../board.ts";
import { groupsCounter, MAX_BATCH_BYTES } from "../waiting/gather_sweep.ts";
import { Alarm } from "./alarm.ts";
import { intArray, uuidArray } from "./arrays.ts";
import { correlationsText, versionsOf } from "./arrivals.ts";
import { formStatement, type Gathered, type Member, pack } from "./batch_tasks.ts";
import type { Lanes } from "./lanes.ts";

interface GroupRow {
  readonly ready: null;
  /** Of an arrival: what was looked at before has none. */
  readonly seq: bigint | null;
  readonly org: string;
  readonly key: string;
  readonly hash: string;
  /** These three are lists with commas: many times cheaper to read than arrays. No versions: each is the first. */
  readonly ids: string;
  readonly versions: string | null;
  readonly sizes: string;
  readonly correlations: readonly (string | null)[] | null;
  readonly arrived: bigint;
}

/** The last row: when the oldest came of those that wait on, and whether there are tasks to claim. */
interface LastRow {
  readonly oldest: bigint | null;
  readonly ready: boolean;
}

/** What a step did: how many artifacts had come, and how many tasks it made. */
interface Formed {
  readonly came: number;
  readonly batches: number;
  readonly alone: number;
  /** There are others to claim. */
  readonly isReady: boolean;
  /** When the first came of what waits on. */
  readonly oldest: number | undefined;
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
  /** It has tasks that others made. */
  ready(agent: string): void;
}

/** Makes tasks of what arrives for one agent. */
export interface Batches extends Service {
  wake(): void;
}

/** To look costs a commit, and to keep what fills no batch another look: what comes in so short a time is looked at together. */
const TOGETHER_MS = 20;
/** After so many the next are looked at without delay: they have waited already. */
const MANY = 2_000;

/** Agent, and since when what came is overdue. */
const TAKE = "SELECT * FROM runtime.board_take_arrivals($1, $2)";
/**
 * Agent; orgs, hashes and keys of batches, and of each how many artifacts, correlations as the text of an array, and when the
 * first came; ids, versions and sizes of all of them, one after the other, where no versions are the first ones.
 */
const KEEP = `
INSERT INTO runtime.board_batches (agent, org_id, key_hash, key, ids, versions, sizes, correlations, arrived_at)
SELECT $1, u.org, u.hash, u.key, ($8::uuid[])[u.until - u.count + 1:u.until],
  coalesce(($9::int[])[u.until - u.count + 1:u.until], array_fill(1, ARRAY[u.count])),
  ($10::int[])[u.until - u.count + 1:u.until], u.correlations::text[], u.arrived
FROM (
  SELECT u.*, sum(u.count) OVER (ORDER BY u.n)::int AS until
  FROM unnest($2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::bigint[]) WITH ORDINALITY
    AS u(org, hash, key, count, correlations, arrived, n)
) u`;

/**
 * Starts to make tasks of what arrives for an agent, and of what is overdue: one process at a time for all servers. What it
 * takes away and what it makes are one transaction; it holds nothing that those who publish or settle wait for. Unlike a
 * claim it waits for the disk: whoever works on a batch has handed its id to others, and the same id must not come back from a
 * crash with more in it.
 */
export function startBatches(
  { agent, batch }: BoardAgent & { readonly batch: NonNullable<BoardAgent["batch"]> },
  { database, context, lanes, goesAlone, pollMs, formed, ready }: BatchesParts,
): Batches {
  const { clock } = context;
  const wake = new Wake();
  const due = new Alarm(clock, () => wake.wake());
  const sent = groupsCounter(context);

  /** The members of each batch, those first that have waited. */
  function groupsOf(rows: readonly GroupRow[]): Gathered[] {
    const groups = new Map<string, { org: string; key: string; hash: string; members: Member[] }>();
    for (const { org, key, hash, correlations, arrived, ...lists } of rows) {
      const ids = lists.ids.split(",");
      const versions = lists.versions?.split(",");
      const sizes = lists.sizes.split(",");
      const arrivedAt = Number(arrived);
      const name = `${hash} ${org}`;
      let group = groups.get(name);
      if (!group) {
        group = { org, key, hash, members: [] };
        groups.set(name, group);
      }
      for (const [i, id] of ids.entries()) {
        const version = Number(versions?.[i] ?? 1);
        const bytes = Number(sizes[i]);
        group.members.push({ id, version, bytes, correlationId: correlations?.[i] ?? null, arrivedAt });
      }
    }
    return [...groups.values()];
  }

  const aloneHow = (org: string, { correlationId, arrivedAt }: Member) =>
    goesAlone({ agent, org, correlationId: correlationId ?? undefined, arrivedAt });

  async function form(): Promise<Formed> {
    return database.interactive(async (tx) => {
      const now = clock.now();
      const overdue = now - batch.timeoutMs;
      const rows = await tx.query<GroupRow | LastRow>({
        name: "board_take_arrivals",
        text: TAKE,
        values: [agent, overdue],
      });
      const taken = rows.filter((row) => row.ready === null);
      const { oldest, ready: isReady } = rows.find((row) => row.ready !== null)!;
      const rules = { size: batch.size, maxBytes: MAX_BATCH_BYTES, overdue, aloneHow };
      const packed = pack(groupsOf(taken), rules);
      const { batches, alone, kept } = packed;
      // One does not wait for the answer to the other.
      await Promise.all([
        kept.length > 0 && tx.query(keepStatement(agent, kept)),
        batches.length + alone.length > 0 && tx.query(formStatement(agent, packed, lanes, now)),
      ]);
      const waiting = kept.map(({ members }) => members[0]!.arrivedAt);
      if (oldest !== null) waiting.push(Number(oldest));
      return {
        came: taken.reduce((sum, { seq, sizes }) => (seq === null ? sum : sum + sizes.split(",").length), 0),
        batches: batches.length,
        alone: alone.length,
        isReady,
        oldest: waiting.length > 0 ? Math.min(...waiting) : undefined,
      };
    });
  }

  const loop = runLoop(context, `board batches ${agent}`, {
    wake,
    idleMs: pollMs,
    async step(signal) {
      const { came, batches, alone, isReady, oldest } = await form();
      if (batches + alone > 0) {
        sent.add(batches, { agent, outcome: "sent" });
        formed(agent);
      } else if (isReady) ready(agent);
      if (oldest !== undefined) due.in(oldest + batch.timeoutMs - clock.now());
      if (came > 0 && came < MANY) await sleep(clock, TOGETHER_MS, signal);
      return came > 0;
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

function keepStatement(agent: string, kept: readonly Gathered[]): Statement {
  const members = kept.flatMap((group) => group.members);
  return {
    name: "board_batches_keep",
    text: KEEP,
    values: [
      agent,
      kept.map(({ org }) => org),
      kept.map(({ hash }) => hash),
      kept.map(({ key }) => key),
      kept.map((group) => group.members.length),
      kept.map((group) => correlationsText(group.members.map(({ correlationId }) => correlationId))),
      kept.map((group) => group.members[0]!.arrivedAt),
      uuidArray(members.map(({ id }) => id)),
      versionsOf(members.map(({ version }) => version)),
      intArray(members.map(({ bytes }) => bytes)),
    ],
  };
}
