import { KhalaError } from "@khala/contracts";
import type { ApprovalJson } from "@khala/contracts/blackboard/v1";
import type { WaitingApprovalJson } from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { derivedId } from "../model/derived_id.ts";
import type { Task } from "../model/task.ts";
import { workKey } from "../model/task.ts";
import { artifactResource } from "../model/visibility.ts";
import { insertIntoOutbox } from "../publish/outbox.ts";
import type { Sweep } from "./sweep.ts";

/** The decision of a person. */
export interface Decision {
  readonly approved: boolean;
  readonly reason?: string;
}

/** Tasks that wait for an approval. */
export interface Approvals {
  /** Holds a task until it is decided. Idempotent; the task leaves the queue. */
  hold(task: Task): Promise<void>;
  /** Pending approvals, oldest first, each as `show` returns it. */
  list(org: string, how?: { limit?: number; show?(task: Task): Task }): Promise<ApprovalJson[]>;
  /**
   * Approves or rejects a task, unless `check` throws. Repeating a decision changes nothing; a different one is refused.
   * Returns the task's correlation.
   */
  decide(
    org: string,
    id: string,
    decision: Decision,
    by: string,
    check?: (task: Task) => Promise<void>,
  ): Promise<string | undefined>;
}

/** A task that waits for an approval. */
export interface WaitingTask {
  readonly approval: WaitingApprovalJson;
  /** Subjects; null for the whole org. */
  readonly audience: readonly string[] | null;
}

interface ApprovalRow {
  readonly task: Task;
  readonly state: "pending" | "approved" | "rejected";
  readonly by: string | null;
}

/** Opens approvals. */
export function openApprovals(
  database: Database,
  context: Pick<Context, "clock">,
  outbox: Pick<Sweep, "wake">,
): Approvals {
  const now = () => new Date(context.clock.now());

  async function taskOf(org: string, id: string): Promise<Task> {
    const [row] = await database.query<{ task: Task }>({
      name: "board_approval_task",
      text: "SELECT task FROM runtime.board_approvals WHERE approval_id = $1 AND org_id = $2",
      values: [id, org],
    });
    if (!row) throw notFound("approval", id);
    return row.task;
  }

  return {
    async hold(task) {
      const [{ org_id, correlation_id }] = task.artifacts;
      await database.query({
        name: "board_approval_hold",
        text: `INSERT INTO runtime.board_approvals (approval_id, org_id, correlation_id, agent, task, created_at)
          VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
        values: [approvalId(task), org_id, correlation_id ?? null, task.agent, JSON.stringify(task), now()],
      });
    },

    async list(org, { limit = 100, show = (task: Task) => task } = {}) {
      const rows = await database.query<{ id: string; task: Task; created: Date }>({
        name: "board_approvals",
        text: `SELECT approval_id AS id, task, created_at AS created FROM runtime.board_approvals
          WHERE state = 'pending' AND org_id = $1 ORDER BY created_at LIMIT $2`,
        values: [org, limit],
      });
      return rows.map(({ id, task, created }) => ({
        id,
        task: { ...task, artifacts: [...show(task).artifacts] },
        created_at: created.toISOString(),
      }));
    },

    async decide(org, id, { approved, reason }, by, check) {
      const state = approved ? "approved" : "rejected";
      if (reason?.includes("\0"))
        throw new KhalaError("invalid_request", "reason must be a string without NUL.", { field: "reason" });
      // Before the transaction: a check may read, and must not wait for a connection while it holds one.
      if (check) await check(await taskOf(org, id));
      const correlation = await database.interactive(async (tx) => {
        const [row] = await tx.query<ApprovalRow>({
          name: "board_approval_lock",
          text: `SELECT task, state, decided_by AS by FROM runtime.board_approvals
            WHERE approval_id = $1 AND org_id = $2 FOR UPDATE`,
          values: [id, org],
        });
        if (!row) throw notFound("approval", id);
        const { correlation_id } = row.task.artifacts[0];
        if (row.state === state) return correlation_id;
        if (row.state !== "pending") {
          const message = `The task was already ${row.state} by ${row.by}. A decision cannot be changed.`;
          throw new KhalaError("already_decided", message);
        }
        await tx.query({
          name: "board_approval_decide",
          text: `UPDATE runtime.board_approvals SET state = $2, decided_by = $3, reason = $4, decided_at = $5
            WHERE approval_id = $1 AND org_id = $6`,
          values: [id, state, by, reason ?? null, now(), org],
        });
        if (approved)
          await tx.query(insertIntoOutbox({ kind: "task", body: approvedTask(row.task, by) }, now()));
        return correlation_id;
      });
      outbox.wake();
      return correlation;
    },
  };
}

/** A task that waits for an approval, as its document shows it, and who may see that: everybody who may read its artifacts. */
export async function findWaitingTask(
  database: Pick<Database, "query">,
  org: string,
  id: string,
): Promise<WaitingTask | undefined> {
  const [row] = await database.query<{ task: Task; created: Date }>({
    name: "board_approval_waiting",
    text: `SELECT task, created_at AS created FROM runtime.board_approvals
      WHERE approval_id = $1 AND org_id = $2 AND state = 'pending'`,
    values: [id, org],
  });
  if (!row) return undefined;
  const { agent: name, artifacts } = row.task;
  const [{ correlation_id }] = artifacts;
  const approval = { kind: "board", id, name, created_at: row.created.toISOString() };
  return {
    approval: { ...approval, ...(correlation_id && { correlation_id }) },
    audience: artifacts.map((artifact) => artifactResource(artifact).audience).reduce(both),
  };
}

/** The subjects of both audiences; null is everybody. */
function both(one: readonly string[] | null, other: readonly string[] | null): readonly string[] | null {
  if (one === null || other === null) return one ?? other;
  return one.filter((subject) => other.includes(subject));
}

/** A replay of the task needs an approval of its own. */
function approvalId(task: Task): string {
  return derivedId(task.id, `approval:${workKey(task)}`);
}

/** The held task was settled, so the approved one needs a replay id of its own. */
function approvedTask(task: Task, by: string): Task {
  const replay = derivedId(task.id, `approved:${workKey(task)}`);
  return { ...task, attempt: 1, approved_by: by, replay_id: replay };
}
