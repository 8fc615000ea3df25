import type { Database, Row } from "../../database/database.ts";
import { type Clock, isoTime } from "../../kit/clock.ts";
import { openLimiter } from "../../kit/limiter.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import { BY_INDEX, type Claim, releaseStatement } from "./statements.ts";

/** The result of a claim. */
export interface Claims {
  readonly claims: readonly Claim[];
  /** Claims whose artifact is no longer on the board. */
  readonly missing: readonly Claim[];
  /** Milliseconds until the next task is due that is not yet. */
  readonly nextDueMs: number | undefined;
}

interface ClaimRow extends Row {
  readonly seq: bigint;
  readonly lane: string;
  readonly org_id: string;
  readonly attempt: number;
  readonly due: number;
  readonly task_id: string;
  readonly key: string;
  readonly created_at: bigint;
  readonly artifact: string | null;
  readonly task: string | null;
}

/** The agents, of these, with a task that may be claimed now. */
const CLAIMABLE = `
SELECT u.agent FROM unnest($1::text[]) AS u(agent) CROSS JOIN LATERAL (
  SELECT FROM runtime.board_tasks t WHERE t.agent = u.agent AND t.ready AND t.due_at <= now()
    AND (t.held_until IS NULL OR t.held_until <= now()) LIMIT 1
) t`;

/** A task may be committed this long after it became due. */
const SLACK_MS = 50;
/** All due tasks are looked through this often. */
const ALL_EVERY_MS = 1_000;
/** Claims at a time: the connections are shared with all else that the server does. */
const AT_ONCE = 2;

/** An org is remembered this long after its last task: until vacuum has removed what a claim would walk over. */
const REMEMBER_MS = 60_000;
const MAX_ORGS = 10_000;
/** An agent whose orgs are not known begins with small shares, to find out. */
const UNKNOWN_ORGS = 16;

/** From where on the tasks of an org are looked through. */
interface Position {
  readonly dueMs: number;
  /** When it was found, or the last of them was claimed. */
  readonly claimedAt: number;
}

/** The rotation between orgs in the claims of an agent. */
interface Turn {
  /** The last to be newly claimed from are the last. */
  readonly orgs: Map<string, Position>;
  /** The org that was served last. */
  after: string;
  /** When to look through all tasks again. */
  allAt: number;
}

/**
 * Claims tasks for this process. The index of due tasks begins with those that are worked on, and with what vacuum has not
 * removed yet. So a claim begins where the one before ended, and looks through all of it once a second.
 * Orgs take turns: one with many tasks does not keep another waiting (ADR-0069).
 */
export class ClaimStore {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #holder: string;
  readonly #leaseMs: number;
  readonly #turns = new Map<string, Turn>();
  readonly #limiter = openLimiter(AT_ONCE);

  constructor(database: Database, clock: Clock, how: { readonly holder: string; readonly leaseMs: number }) {
    this.#database = database;
    this.#clock = clock;
    this.#holder = how.holder;
    this.#leaseMs = how.leaseMs;
  }

  /** Claims up to `most` tasks of an agent, one of each org after the other; of an org the longest due first. */
  claim(agent: string, most: number): Promise<Claims> {
    return this.#limiter.run("", async () => {
      const turn = this.#turnOf(agent);
      const isAll = this.#clock.now() >= turn.allAt;
      const found = await this.#claim(agent, most, turn, isAll);
      if (isAll || found.claims.length + found.missing.length > 0) return found;
      return this.#claim(agent, most, turn, true);
    });
  }

  /** Tasks may be due that a claim would begin behind. */
  lookAtAll(agent: string): void {
    this.#turnOf(agent).allAt = 0;
  }

  /** Gives claims back, and answers of which agents they were. Those that were not begun count as no attempt. */
  async release(claims: readonly Claim[], begun: boolean): Promise<ReadonlySet<string>> {
    const statement = releaseStatement(this.#holder, claims, begun);
    const [, rows] = await this.#database.transaction([BY_INDEX, statement]);
    return new Set(rows!.map(({ agent }) => agent as string));
  }

  /** The agents, of these, that have tasks to claim. */
  async claimable(agents: readonly string[]): Promise<string[]> {
    const [, rows] = await this.#database.transaction([
      BY_INDEX,
      { name: "board_claimable", text: CLAIMABLE, values: [agents] },
    ]);
    return rows!.map(({ agent }) => agent as string);
  }

  #turnOf(agent: string): Turn {
    const turn = this.#turns.get(agent) ?? { orgs: new Map(), after: "", allAt: 0 };
    this.#turns.set(agent, turn);
    return turn;
  }

  async #claim(agent: string, most: number, turn: Turn, isAll: boolean): Promise<Claims> {
    const now = this.#clock.now();
    const orgs = [...turn.orgs];
    const busy = orgs.filter(([, { claimedAt }]) => now - claimedAt < ALL_EVERY_MS).length;
    const [, found] = await this.#database.transaction([
      BY_INDEX,
      {
        name: "board_claim",
        text: "SELECT * FROM runtime.board_claim($1, $2, $3, $4, $5, $6, $7, $8)",
        values: [
          agent,
          most,
          Math.ceil(most / (busy || UNKNOWN_ORGS)),
          this.#holder,
          this.#leaseMs,
          turn.after,
          orgs.map(([org]) => org),
          orgs.map(([, { dueMs }]) => (isAll ? 0 : dueMs)),
        ],
      },
    ]);
    const [orgRows, rows] = partition(found as ClaimRow[], ({ seq }) => seq === null);
    rows.sort((a, b) => a.due - b.due || (a.seq < b.seq ? -1 : 1));
    if (isAll) turn.allAt = now + ALL_EVERY_MS;
    remember(turn, orgRows, rows, now);
    // One row per org, of any number: too many to be arguments of one call.
    const nextDue = orgRows.reduce(
      (least, { due }) => Math.min(least, due ?? least),
      Number.POSITIVE_INFINITY,
    );
    const claims: Claim[] = [];
    const missing: Claim[] = [];
    for (const row of inTurn(rows)) {
      const claim = claimOf(agent, row);
      if (row.artifact === null && row.task === null) missing.push(claim);
      else claims.push(claim);
    }
    return { claims, missing, nextDueMs: nextDue < Number.POSITIVE_INFINITY ? nextDue : undefined };
  }
}

/** Notes where the next claim begins: behind which org, and from where on in each. */
function remember(turn: Turn, found: readonly ClaimRow[], rows: readonly ClaimRow[], now: number): void {
  const { orgs, after } = turn;
  for (const { org_id } of found) if (!orgs.has(org_id)) orgs.set(org_id, { dueMs: 0, claimedAt: now });
  const last = new Map(rows.map(({ org_id, due }) => [org_id, due]));
  for (const [org, due] of last) {
    orgs.delete(org);
    orgs.set(org, { dueMs: due - SLACK_MS, claimedAt: now });
  }
  const served = [...last.keys()].sort();
  turn.after = served.findLast((org) => org <= after) ?? served.at(-1) ?? after;
  for (const [org, { claimedAt }] of orgs) {
    if (orgs.size <= MAX_ORGS && Math.abs(now - claimedAt) < REMEMBER_MS) return;
    orgs.delete(org);
  }
}

function partition<T>(all: readonly T[], isFirst: (each: T) => boolean): [T[], T[]] {
  return [all.filter(isFirst), all.filter((each) => !isFirst(each))];
}

/** The first of each org, then the second of each, and so on. */
function inTurn(rows: readonly ClaimRow[]): readonly ClaimRow[] {
  if (rows.every(({ org_id }) => org_id === rows[0]!.org_id)) return rows;
  const counts = new Map<string, number>();
  const places = rows.map((row) => {
    const place = counts.get(row.org_id) ?? 0;
    counts.set(row.org_id, place + 1);
    return { row, place };
  });
  return places.sort((a, b) => a.place - b.place).map(({ row }) => row);
}

/** The claim in a row. Without its artifact it has no task. */
function claimOf(agent: string, row: ClaimRow): Claim {
  const { seq, org_id: org, lane, attempt, task_id: id, key } = row;
  if (row.task !== null) return { seq, org, lane, task: { ...(JSON.parse(row.task) as Task), attempt } };
  // A claim without its artifact is settled as missing, and never reaches an agent.
  const artifacts = (row.artifact === null ? [] : [JSON.parse(row.artifact)]) as unknown as [Artifact];
  const created_at = isoTime(Number(row.created_at));
  return { seq, org, lane, task: { id, agent, artifacts, key, attempt, created_at } };
}
