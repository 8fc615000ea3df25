import type { Database, Row } from "../../database/database.ts";
import { type Clock, isoTime } from "../../kit/clock.ts";
import type { Artifact } from "../model/artifact.ts";
import type { Task } from "../model/task.ts";
import { BY_INDEX, releaseStatement } from "./statements.ts";

/** A task that this process may work on until its lease ends. */
export interface Claim {
  readonly seq: bigint;
  readonly org: string;
  readonly lane: string;
  readonly task: Task;
}

/** What a claim brought. */
export interface Claims {
  readonly claims: readonly Claim[];
  /** Those whose artifact is not on the board any more. */
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

const NEXT_DUE = `
SELECT ceil(extract(epoch FROM t.due_at - clock_timestamp()) * 1000)::int AS ms FROM runtime.board_tasks t
WHERE t.agent = $1 AND t.ready AND t.due_at > now() ORDER BY t.due_at, t.seq LIMIT 1`;

/** Which of these agents have a task that may be claimed now. */
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

/** From where on the tasks of an agent are looked through. */
interface Position {
  readonly dueMs: number;
  /** When to look through all of them again. */
  readonly allAt: number;
}

/**
 * Claims tasks for this process. The index of due tasks begins with those that are worked on, and with what vacuum has not
 * removed yet. So a claim begins where the one before ended, and looks through all of it once a second.
 */
export class ClaimStore {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #holder: string;
  readonly #leaseMs: number;
  readonly #positions = new Map<string, Position>();
  readonly #waiting: (() => void)[] = [];
  #free = AT_ONCE;

  constructor(database: Database, clock: Clock, how: { readonly holder: string; readonly leaseMs: number }) {
    this.#database = database;
    this.#clock = clock;
    this.#holder = how.holder;
    this.#leaseMs = how.leaseMs;
  }

  /** Claims up to `most` tasks of an agent, the longest due first. */
  async claim(agent: string, most: number): Promise<Claims> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      const position = this.#positions.get(agent);
      const found = await this.#claim(agent, most, position);
      if (!position || found.claims.length + found.missing.length > 0) return found;
      return await this.#claim(agent, most, undefined);
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  /** Tasks may be due that a claim would begin behind. */
  lookAtAll(agent: string): void {
    this.#positions.delete(agent);
  }

  /** Gives claims back, and answers of which agents they were. Those that were not begun count as no attempt. */
  async release(claims: readonly Claim[], begun: boolean): Promise<ReadonlySet<string>> {
    const statement = releaseStatement(this.#holder, claims, begun);
    const [, rows] = await this.#database.transaction([BY_INDEX, statement]);
    return new Set(rows!.map(({ agent }) => agent as string));
  }

  /** Those of these agents that have tasks to claim. */
  async claimable(agents: readonly string[]): Promise<string[]> {
    const [, rows] = await this.#database.transaction([
      BY_INDEX,
      { name: "board_claimable", text: CLAIMABLE, values: [agents] },
    ]);
    return rows!.map(({ agent }) => agent as string);
  }

  async #claim(agent: string, most: number, position: Position | undefined): Promise<Claims> {
    const now = this.#clock.now();
    const isAll = !position || now >= position.allAt;
    const [, found, next] = await this.#database.transaction([
      BY_INDEX,
      {
        name: "board_claim",
        text: "SELECT * FROM runtime.board_claim($1, $2, $3, $4, $5)",
        values: [agent, most, this.#holder, this.#leaseMs, isAll ? 0 : position.dueMs],
      },
      { name: "board_next_due", text: NEXT_DUE, values: [agent] },
    ]);
    const rows = (found as ClaimRow[]).sort((a, b) => a.due - b.due || (a.seq < b.seq ? -1 : 1));
    const last = rows.at(-1);
    this.#positions.set(agent, {
      dueMs: last ? last.due - SLACK_MS : (position?.dueMs ?? 0),
      allAt: isAll ? now + ALL_EVERY_MS : position.allAt,
    });
    const claims: Claim[] = [];
    const missing: Claim[] = [];
    for (const row of rows) {
      const claim = claimOf(agent, row);
      if (row.artifact === null && row.task === null) missing.push(claim);
      else claims.push(claim);
    }
    return { claims, missing, nextDueMs: next![0]?.ms as number | undefined };
  }
}

/** What a row says. Where the artifact is gone the task has none. */
function claimOf(agent: string, row: ClaimRow): Claim {
  const { seq, org_id: org, lane, attempt, task_id: id, key } = row;
  if (row.task !== null) return { seq, org, lane, task: { ...(JSON.parse(row.task) as Task), attempt } };
  const artifacts = (row.artifact === null ? [] : [JSON.parse(row.artifact)]) as unknown as [Artifact];
  const created_at = isoTime(Number(row.created_at));
  return { seq, org, lane, task: { id, agent, artifacts, key, attempt, created_at } };
}
