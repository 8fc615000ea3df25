import type { TaskJson } from "@khala/contracts/blackboard/v1";
import type { Database } from "../../database/database.ts";
import type { AgentOfOrg } from "../model/counts.ts";
import type { Task } from "../model/task.ts";
import { workKey } from "../model/task.ts";

/** The state of a claim. */
export type ClaimState = "offered" | "claimed" | "settled" | "failed" | "lost" | "withdrawn";

/** The board's outcome of a settlement. */
export type Outcome = "done" | "retry" | "dead";

/** A claim as the holder of its task sees it. */
export interface HeldClaim {
  readonly claimId: string;
  readonly state: ClaimState;
  readonly settlement: string | null;
  readonly worker: string | null;
  /** Whether another server now holds the task. */
  readonly foreign: boolean;
  /** Whether the lease has expired. */
  readonly ended: boolean;
  /** Milliseconds since a worker claimed it. */
  readonly age: number | null;
}

/** A claim as a settle request sees it. */
export interface SettledClaim {
  readonly org: string;
  readonly agent: string;
  readonly state: ClaimState;
  readonly settlement: string | null;
  readonly outcome: Outcome | null;
}

/** A claim as its worker sees it. */
export interface TakenClaim {
  readonly claimId: string;
  /** The idempotency key. */
  readonly work: string;
  readonly task: TaskJson;
}

/** The tasks of an agent in an org that no worker has claimed. */
export interface Offered extends AgentOfOrg {
  readonly tasks: number;
}

/** Stores claims. Times are the database's, which all servers share. */
export interface Claims {
  /**
   * Offers a task, or takes over another server's offer, claim or settlement of it. A `closed` offer reserves the task's
   * position but cannot be claimed.
   */
  offer(claimId: string, task: Task, how: { readonly closed: boolean }): Promise<HeldClaim>;
  /** Renews this server's offers. */
  renew(): Promise<void>;
  /** Closes this server's offers. */
  lapse(): Promise<void>;
  /** The states of the held claims. */
  held(ids: readonly string[]): Promise<HeldClaim[]>;
  take(ask: {
    readonly agent: string;
    readonly worker: string;
    readonly max: number;
    readonly org: string | undefined;
  }): Promise<TakenClaim[]>;
  /** Opens an abandoned claim again. */
  release(ids: readonly string[]): Promise<void>;
  /** Returns whether the lease was renewed. */
  heartbeat(claimId: string): Promise<boolean>;
  /** Returns whether this settlement was accepted as the first one. */
  settle(claimId: string, settlement: string, failed: boolean): Promise<boolean>;
  find(claimId: string): Promise<SettledClaim | undefined>;
  /** How many tasks of each agent and org are offered and wait for a worker, on all servers. Of all orgs if none are given. */
  offered(agents: readonly string[], orgs?: readonly string[]): Promise<Offered[]>;
  /** The task of a claim whose worker still has its lease. */
  claimed(claimId: string): Promise<Task | undefined>;
  /** Ends an open claim: as lost only if its lease has expired, as retracted only if no worker has it. Returns whether it did. */
  end(claimId: string, how: "lost" | "withdrawn" | "retracted"): Promise<boolean>;
  setOutcome(claimId: string, outcome: Outcome): Promise<void>;
  /** Deletes old claims. Returns whether there may be more. */
  sweep(olderThanMs: number, limit: number): Promise<boolean>;
}

const HELD = `claim_id AS "claimId", state, settlement, worker, lease_until <= now() AS ended,
  (extract(epoch FROM now() - claimed_at) * 1000)::float8 AS age`;

/** Opens the claim store of this server. */
export function openClaims(
  database: Database,
  { server, leaseMs, offerMs }: { server: string; leaseMs: number; offerMs: number },
): Claims {
  return {
    async offer(claimId, task, { closed }) {
      const work = workKey(task);
      const openMs = closed ? 0 : offerMs;
      const org = task.artifacts[0].org_id;
      const [, rows] = await database.transaction([
        {
          name: "board_claim_tried",
          // A failure of an earlier attempt was followed by this one, so it was a retry.
          text: `UPDATE runtime.board_claims SET outcome = 'retry' WHERE work = $1 AND org_id = $2
            AND state = 'failed' AND outcome IS NULL AND attempt < $3`,
          values: [work, org, task.attempt],
        },
        {
          name: "board_claim_offer",
          text: `INSERT INTO runtime.board_claims AS c
              (claim_id, work, agent, org_id, task, attempt, server, state, lease_until)
            VALUES ($1, $2, $3, $4, $5, $6, $7, 'offered', clock_timestamp() + $8 * interval '1 ms')
            ON CONFLICT (work, org_id) WHERE state IN ('offered', 'claimed', 'settled', 'failed') AND outcome IS NULL
            DO UPDATE SET server = excluded.server,
              task = CASE WHEN c.state = 'offered' THEN excluded.task ELSE c.task END,
              attempt = CASE WHEN c.state = 'offered' THEN excluded.attempt ELSE c.attempt END,
              lease_until = CASE WHEN c.state = 'offered' THEN excluded.lease_until ELSE c.lease_until END
            RETURNING ${HELD}, false AS foreign`,
          values: [claimId, work, task.agent, org, JSON.stringify(task), task.attempt, server, openMs],
        },
      ]);
      // A transaction returns untyped rows; HELD has the columns.
      return rows![0] as unknown as HeldClaim;
    },

    async renew() {
      await database.query({
        name: "board_claim_renew",
        text: `UPDATE runtime.board_claims SET lease_until = clock_timestamp() + $2 * interval '1 ms'
          WHERE state = 'offered' AND server = $1`,
        values: [server, offerMs],
      });
    },

    async lapse() {
      await database.query({
        name: "board_claim_lapse",
        text: "UPDATE runtime.board_claims SET lease_until = now() WHERE state = 'offered' AND server = $1",
        values: [server],
      });
    },

    held: (ids) =>
      database.query({
        name: "board_claim_held",
        text: `SELECT ${HELD}, server <> $2 AS foreign FROM runtime.board_claims WHERE claim_id = ANY($1::uuid[])`,
        values: [ids, server],
      }),

    async take({ agent, worker, max, org }) {
      const rows = await database.query<TakenClaim>({
        name: "board_claim_take",
        text: `WITH next AS MATERIALIZED (
            SELECT claim_id FROM runtime.board_claims
            WHERE agent = $1 AND state = 'offered' AND lease_until > now() AND ($5::text IS NULL OR org_id = $5)
            ORDER BY claim_id LIMIT $3 FOR UPDATE SKIP LOCKED
          )
          UPDATE runtime.board_claims c SET state = 'claimed', worker = $2, claimed_at = now(),
            lease_until = clock_timestamp() + $4 * interval '1 ms'
          FROM next WHERE c.claim_id = next.claim_id RETURNING c.claim_id AS "claimId", c.work, c.task`,
        values: [agent, worker, max, leaseMs, org ?? null],
      });
      return rows.toSorted((a, b) => (a.claimId < b.claimId ? -1 : 1));
    },

    async release(ids) {
      await database.query({
        name: "board_claim_give_back",
        text: `UPDATE runtime.board_claims SET state = 'offered', worker = NULL, claimed_at = NULL,
            lease_until = clock_timestamp() + $2 * interval '1 ms'
          WHERE claim_id = ANY($1::uuid[]) AND state = 'claimed'`,
        values: [ids, offerMs],
      });
    },

    async heartbeat(claimId) {
      const rows = await database.query({
        name: "board_claim_heartbeat",
        text: `UPDATE runtime.board_claims SET lease_until = clock_timestamp() + $2 * interval '1 ms'
          WHERE claim_id = $1 AND state = 'claimed' RETURNING 1`,
        values: [claimId, leaseMs],
      });
      return rows.length > 0;
    },

    async settle(claimId, settlement, failed) {
      const rows = await database.query({
        name: "board_claim_settle",
        text: `UPDATE runtime.board_claims SET state = $3, settlement = $2
          WHERE claim_id = $1 AND state = 'claimed' RETURNING 1`,
        values: [claimId, settlement, failed ? "failed" : "settled"],
      });
      return rows.length > 0;
    },

    async find(claimId) {
      const [row] = await database.query<SettledClaim>({
        name: "board_claim_find",
        text: `SELECT org_id AS org, agent, state, settlement, outcome FROM runtime.board_claims WHERE claim_id = $1`,
        values: [claimId],
      });
      return row;
    },

    offered: (agents, orgs) =>
      database.query({
        name: orgs ? "board_claim_offered_of" : "board_claim_offered",
        text: `SELECT agent, org_id AS org, count(*)::int AS tasks FROM runtime.board_claims
          WHERE agent = ANY($1) AND state = 'offered' AND lease_until > now()${orgs ? " AND org_id = ANY($2)" : ""}
          GROUP BY agent, org_id`,
        values: orgs ? [agents, orgs] : [agents],
      }),

    async claimed(claimId) {
      const [row] = await database.query<{ task: Task }>({
        name: "board_claim_task",
        text: `SELECT task FROM runtime.board_claims
          WHERE claim_id = $1 AND state = 'claimed' AND lease_until > now()`,
        values: [claimId],
      });
      return row?.task;
    },

    async end(claimId, how) {
      const states = how === "retracted" ? ["offered"] : ["offered", "claimed"];
      const rows = await database.query({
        name: "board_claim_end",
        text: `UPDATE runtime.board_claims SET state = $2
          WHERE claim_id = $1 AND server = $3 AND state = ANY($4::text[])
            AND ($2 = 'withdrawn' OR lease_until <= now()) RETURNING 1`,
        values: [claimId, how === "lost" ? "lost" : "withdrawn", server, states],
      });
      return rows.length > 0;
    },

    async setOutcome(claimId, outcome) {
      await database.query({
        name: "board_claim_outcome",
        text: "UPDATE runtime.board_claims SET outcome = $2 WHERE claim_id = $1 AND outcome IS NULL",
        values: [claimId, outcome],
      });
    },

    async sweep(olderThanMs, limit) {
      const rows = await database.query({
        name: "board_claim_sweep",
        text: `DELETE FROM runtime.board_claims WHERE claim_id IN (
            SELECT claim_id FROM runtime.board_claims
            WHERE created_at < now() - $1 * interval '1 ms' AND lease_until < now() - $1 * interval '1 ms'
            ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED
          ) RETURNING 1`,
        values: [olderThanMs, limit],
      });
      return rows.length === limit;
    },
  };
}
