import type { Database, Row } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import { BundledClaim, type Claimed } from "./claimed.ts";
import { OWN_KEY_LENGTH } from "./lanes.ts";

/** A task that was claimed, with the artifact that it is about, or as it was enqueued. */
export interface ClaimRow extends Row, Partial<Together> {
  readonly seq: bigint;
  readonly lane: string | null;
  readonly attempt: number;
  readonly task_id: string;
  readonly key: string;
  readonly created_at: bigint;
  /** The artifact, or the task where that was enqueued: the whole of it, or without the artifacts, where those are apart. */
  readonly artifact: string | null;
  readonly task: string | null;
  /** When it became due, in milliseconds. */
  readonly due: number;
}

/** The artifacts of a bundle or of a batch. */
interface Together {
  /** Those that are there as JSON; null if there is none. */
  readonly bodies: string | null;
  /** Separated by commas; null if all artifacts are there, in this order. */
  readonly ids: string | null;
  /** So are their versions, null if each is the first. Of those artifacts other versions may be there, too. */
  readonly versions: string | null;
}

/** A bundle that was claimed. */
interface BundleRow extends Row, Together {
  readonly bundle: bigint;
  /** How far its tasks are from the first, separated by commas. */
  readonly ats: string;
  /** Keys that are hashes, one after the other; null if they are not, and then there are others. */
  readonly own_keys: string | null;
  readonly keys: readonly string[] | null;
  readonly created_at: bigint;
  readonly due: number;
}

/** A claim whose artifact is not there. */
export interface MissingTask extends Pick<ClaimRow, "seq" | "attempt" | "task_id"> {
  readonly bundle?: bigint | undefined;
}

/** Tasks that were claimed, and when to look again if there are no others: milliseconds until the next is due. */
export interface Claims {
  readonly claims: readonly Claimed[];
  readonly missing: readonly MissingTask[];
  /** Others wait that there was no room for. */
  readonly more: boolean;
  readonly nextDueMs: number | undefined;
}

// Subqueries with OFFSET 0 are looked up one by one through an index, whatever the planner knows of the tables.

/** Agent, how many, holder, lease in milliseconds, and from when on (milliseconds). */
const CLAIM = "SELECT * FROM runtime.board_claim_tasks($1, $2, $3, $4, $5)";

/** When the next task of an agent is due that is not yet. */
const NEXT_DUE = `
SELECT ceil(extract(epoch FROM q.due_at - clock_timestamp()) * 1000)::int AS ms FROM runtime.board_queue q
WHERE q.agent = $1 AND q.head AND q.due_at > now() ORDER BY q.due_at LIMIT 1`;

/** Which of these agents have a task that may be claimed now. */
export const READY = `
SELECT u.agent FROM unnest($1::text[]) AS u(agent) WHERE EXISTS (
  SELECT FROM runtime.board_queue q WHERE q.agent = u.agent AND q.head AND q.due_at <= now()
    AND (q.held_until IS NULL OR q.held_until <= now())
  UNION ALL
  SELECT FROM runtime.board_bundles b WHERE b.agent = u.agent AND (b.held_until IS NULL OR b.held_until <= now())
)`;

/**
 * Renews leases: holder, sequences, attempts, lease. Answers those that are still the holder's. A row that is locked is
 * being settled, or will be renewed the next time.
 */
export const RENEW = `
WITH mine AS MATERIALIZED (
  SELECT q.seq, q.attempt FROM unnest($2::bigint[], $3::int[]) AS u(seq, attempt)
  CROSS JOIN LATERAL (
    SELECT q.seq, q.attempt FROM runtime.board_queue q
    WHERE q.seq = u.seq AND q.claimed_by = $1 AND q.attempt = u.attempt OFFSET 0
  ) q
), free AS MATERIALIZED (
  SELECT f.seq FROM mine m
  CROSS JOIN LATERAL (
    SELECT q.seq FROM runtime.board_queue q WHERE q.seq = m.seq AND q.claimed_by = $1
    OFFSET 0 FOR NO KEY UPDATE SKIP LOCKED
  ) f
), renewed AS (
  UPDATE runtime.board_queue q SET held_until = now() + $4 * interval '1 ms'
  FROM (SELECT f.seq FROM free f OFFSET 0) f WHERE q.seq = f.seq AND q.claimed_by = $1
)
SELECT m.seq, m.attempt FROM mine m`;

/** Gives claims back: holder, sequences, attempts, and how many attempts each takes back: 1 if it was not begun. */
export const RELEASE = `
UPDATE runtime.board_queue q SET claimed_by = NULL, held_until = NULL, due_at = now(), attempt = q.attempt - u.back
FROM (
  SELECT u.seq, u.attempt, u.back FROM unnest($2::bigint[], $3::int[], $4::int[]) AS u(seq, attempt, back)
  ORDER BY u.seq OFFSET 0
) u
WHERE q.seq = u.seq AND q.claimed_by = $1 AND q.attempt = u.attempt RETURNING q.agent`;

/** How long what was committed late is looked for behind what was claimed: longer than a commit takes, most times. */
const SLACK_MS = 50;
/** All is looked through at least so often while claims are made, and for at most a twentieth of the time. */
const ALL_EVERY_MS = 1_000;
const ALL_SHARE = 20;

/** Where the claims of an agent's tasks are. */
interface Looked {
  readonly from: number;
  /** When to look through it all again, and when that may be done if nothing else is found. */
  readonly allAt: number;
  readonly soonAt: number;
}

/**
 * Claims the tasks of agents for one holder. At the beginning of the index are those that are being worked on, and what
 * is left of those that were: most claims begin behind them, and only some look through it all.
 */
export class Claimer {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #holder: string;
  readonly #leaseMs: number;
  readonly #looked = new Map<string, Looked>();

  constructor(database: Database, clock: Clock, how: { readonly holder: string; readonly leaseMs: number }) {
    this.#database = database;
    this.#clock = clock;
    this.#holder = how.holder;
    this.#leaseMs = how.leaseMs;
  }

  /** Up to `most` tasks of an agent. */
  async claim(agent: string, most: number): Promise<Claims> {
    const before = this.#looked.get(agent);
    const found = await this.#claim(agent, most, before);
    // Somebody said that there is one: it may have been committed later than any slack.
    if (before && found.claims.length + found.missing.length === 0 && this.#clock.now() >= before.soonAt)
      return this.#claim(agent, most, undefined);
    return found;
  }

  async #claim(agent: string, most: number, before: Looked | undefined): Promise<Claims> {
    const began = this.#clock.now();
    const isAll = !before || began >= before.allAt;
    const values = [agent, most, this.#holder, this.#leaseMs, isAll ? 0 : before.from];
    const [found, next] = await this.#database.transaction([
      { name: "board_claim", text: CLAIM, values },
      { name: "board_next_due", text: NEXT_DUE, values: [agent] },
    ]);
    const rows = (found as ClaimRow[])
      .filter(({ seq }) => seq !== null)
      .sort((a, b) => a.due - b.due || (a.seq < b.seq ? -1 : 1));
    const bundles = (found as BundleRow[]).filter(({ bundle }) => bundle !== null);
    const now = this.#clock.now();
    // Of what it has not come to it knows nothing: it begins no later than at the last that it claimed.
    const last = rows.at(-1);
    const from = last ? last.due - SLACK_MS : (before?.from ?? 0);
    const took = now - began;
    const times = isAll
      ? { allAt: now + Math.min(ALL_EVERY_MS, ALL_SHARE * took), soonAt: now + took }
      : before;
    this.#looked.set(agent, { ...times, from });
    const missing: MissingTask[] = [];
    const parts: { readonly due: number; readonly claims: Claimed[] }[] = [];
    for (const row of rows) {
      const claim = claimedOf(agent, row);
      if (claim) parts.push({ due: row.due, claims: [claim] });
      else missing.push(row);
    }
    for (const row of bundles) parts.push({ due: row.due, claims: claimedTogether(agent, row, missing) });
    if (bundles.length > 0) parts.sort((a, b) => a.due - b.due);
    return {
      claims: parts.flatMap(({ claims }) => claims),
      missing,
      more: found!.some(({ more }) => more === true),
      nextDueMs: next![0]?.ms as number | undefined,
    };
  }

  /** There may be tasks to claim that became due long ago. */
  lookAtAll(agent: string): void {
    this.#looked.delete(agent);
  }
}

/** The claims of a bundle; those whose artifact is not there are added to the others. */
function claimedTogether(agent: string, row: BundleRow, missing: MissingTask[]): Claimed[] {
  const { bundle, own_keys, keys } = row;
  const ats = row.ats.split(",");
  const artifacts = artifactsOf(row);
  const created_at = new Date(Number(row.created_at)).toISOString();
  const claims: Claimed[] = [];
  for (let i = 0; i < ats.length; i++) {
    const at = Number(ats[i]);
    const artifact = artifacts[i];
    if (!artifact) {
      const task_id = row.ids!.split(",")[i]!;
      missing.push({ seq: bundle + BigInt(at), attempt: 1, task_id, bundle });
    } else {
      const { id } = artifact;
      const key = own_keys?.slice(i * OWN_KEY_LENGTH, (i + 1) * OWN_KEY_LENGTH) ?? keys![i]!;
      const task = { id, agent, artifacts: [artifact], key, attempt: 1, created_at } satisfies Task;
      claims.push(new BundledClaim(task, bundle, at));
    }
  }
  return claims;
}

/** The artifacts in their order, nothing in the place of those that are gone: most times they come so. */
function artifactsOf({ bodies, ids, versions }: Together): readonly (Artifact | undefined)[] {
  const found = bodies === null ? [] : (JSON.parse(bodies) as Artifact[]);
  if (ids === null) return found;
  const byName = new Map(found.map((each) => [`${each.id.toLowerCase()} ${each.version}`, each]));
  const each = versions?.split(",");
  return ids.split(",").map((id, i) => byName.get(`${id} ${each?.[i] ?? 1}`));
}

function areAllThere(artifacts: readonly (Artifact | undefined)[]): artifacts is Task["artifacts"] {
  return artifacts.length > 0 && !artifacts.includes(undefined);
}

/** What a row says; undefined if an artifact of it, or the task, is not there any more. */
export function claimedOf(agent: string, row: ClaimRow): Claimed | undefined {
  const { seq, lane, attempt, bodies = null, ids = null, versions = null } = row;
  if (row.task !== null) {
    const task = JSON.parse(row.task) as Task;
    if (bodies === null && ids === null) return { seq, lane, task: { ...task, attempt } };
    const artifacts = artifactsOf({ bodies, ids, versions });
    return areAllThere(artifacts) ? { seq, lane, task: { ...task, artifacts, attempt } } : undefined;
  }
  if (row.artifact === null) return undefined;
  const artifacts: Task["artifacts"] = [JSON.parse(row.artifact) as Artifact];
  const created_at = new Date(Number(row.created_at)).toISOString();
  return { seq, lane, task: { id: row.task_id, agent, artifacts, key: row.key, attempt, created_at } };
}
