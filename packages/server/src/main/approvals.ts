import type { JsonObject } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import type { WaitingApprovalJson } from "@khala/contracts/conversation/v1";
import { boardStreamId } from "../blackboard/observe/stream_id.ts";
import { findWaitingTask } from "../blackboard/waiting/approvals.ts";
import { callName, findWaitingCall, waitingCallIds } from "../conversations/waiting/awaited_calls.ts";
import type { Database } from "../database/database.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { Authority } from "../events/authority.ts";
import { approvals } from "../events/streams.ts";
import type { Context } from "../kit/context.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import { isNameable } from "../sync/model.ts";

/** A row of `approval_changes`, which triggers insert. */
interface Change {
  readonly id: string;
  readonly org: string;
  readonly approvalId: string | null;
  readonly convId: string | null;
  readonly callId: string | null;
}

/** An approval as it is now: `waiting` is undefined for one that is over, or that nobody can be named for. */
interface Approval {
  readonly id: string;
  readonly org: string;
  waiting(): Promise<Waiting | undefined>;
}

interface Waiting {
  readonly approval: WaitingApprovalJson;
  readonly audience: readonly string[] | null;
  readonly owner?: string;
}

/** The wakeup that the triggers send. */
const WAKEUP = "approval_changes";
/** Few: they are reported one after the other, and a change of another org waits for all of them. */
const BATCH = 10;
/** After this time the change of a server that died, or that failed, is reported by any server. */
const CLAIM_MS = 5_000;

/**
 * Reports which approvals wait, of conversations and of the board, as events of the topic `approvals`. A change stays in its
 * table until it is reported, so a crash delays a document and loses none.
 */
export function startApprovalReports(
  database: Database,
  context: Context,
  options: {
    readonly authority: Pick<Authority, "append" | "find">;
    readonly wakeups: Pick<Wakeups, "on" | "onListening">;
    readonly pollMs: number;
  },
): Service {
  const { authority, wakeups, pollMs } = options;
  const wake = new Wake();
  wakeups.on(WAKEUP, () => wake.wake());
  wakeups.onListening(() => wake.wake());

  function callOf(org: string, convId: string, callId: string): Approval {
    const waiting = () => findWaitingCall(database, { org, convId }, callId);
    return { id: callName(convId, callId), org, waiting };
  }

  async function approvalsOf({ org, approvalId, convId, callId }: Change): Promise<Approval[]> {
    if (approvalId !== null)
      return [{ id: approvalId, org, waiting: () => findWaitingTask(database, org, approvalId) }];
    if (convId === null) return [];
    if (callId !== null) return [callOf(org, convId, callId)];
    const calls = await waitingCallIds(database, { org, convId });
    return calls.map((id) => callOf(org, convId, id));
  }

  async function report(approval: Approval): Promise<void> {
    const { id, org } = approval;
    const stream = { org, kind: approvals.kind, streamId: boardStreamId(id) };
    // The sequence before the state: a server with an older state is refused, and reads it again.
    const { seq: expectedSeq = 0n } = (await authority.find(stream)) ?? {};
    const waiting = await approval.waiting();
    // A document that names nobody would be the whole org's.
    const isShown = waiting && (waiting.audience === null || waiting.audience.some(isNameable));
    if (!isShown && expectedSeq === 0n) return;
    const { owner = "khala", audience, ...shown } = waiting ?? {};
    const event = isShown
      ? { type: "approval.waiting", data: { ...shown, ...(audience && { audience }) } as JsonObject }
      : { type: "approval.ended", data: { id } };
    await authority.append({
      stream: approvals,
      streamId: stream.streamId,
      expectedSeq,
      events: [{ event_id: context.newId(), ...event }],
      org,
      // The stream belongs to the owner of the conversation, and is erased with what is theirs.
      actor: owner,
    });
  }

  async function process(change: Change): Promise<void> {
    try {
      for (const approval of await approvalsOf(change)) await report(approval);
      await database.query({
        name: "approval_changes_finish",
        text: "DELETE FROM runtime.approval_changes WHERE org_id = $1 AND change_id = $2",
        values: [change.org, change.id],
      });
    } catch (error) {
      const isConflict = error instanceof KhalaError && error.code === "sequence_conflict";
      if (!isConflict)
        context.log.warn(
          { err: (error as Error).message, approval: change.approvalId ?? change.convId },
          "the change of an approval could not be reported and is retried",
        );
      await database.query({
        name: "approval_changes_release",
        text: `UPDATE runtime.approval_changes SET claimed_until = now() + $3 * interval '1 ms'
          WHERE org_id = $1 AND change_id = $2`,
        values: [change.org, change.id, isConflict ? 0 : CLAIM_MS],
      });
      if (isConflict) wake.wake();
    }
  }

  /** Claims changes of any org but these. */
  function claim(but: readonly string[]): Promise<Change[]> {
    return database.query<Change>({
      name: "approval_changes_claim",
      text: `UPDATE runtime.approval_changes SET claimed_until = now() + $1 * interval '1 ms'
        WHERE change_id IN (
          SELECT change_id FROM runtime.approval_changes
          WHERE (claimed_until IS NULL OR claimed_until <= now()) AND org_id <> ALL($3)
          LIMIT $2 FOR UPDATE SKIP LOCKED
        )
        RETURNING change_id AS id, org_id AS org, approval_id AS "approvalId", conv_id AS "convId", tool_call_id AS "callId"`,
      values: [CLAIM_MS, BATCH, but],
    });
  }

  /** The orgs that had their turn. The backlog of one delays no other's changes: it waits until no other has any. */
  const served = new Set<string>();

  return runLoop(context, "approval reports", {
    wake,
    idleMs: pollMs,
    async step() {
      const changes = await claim([...served]);
      const wasEmpty = served.size === 0;
      if (changes.length === 0) served.clear();
      for (const change of changes) {
        served.add(change.org);
        await process(change);
      }
      return changes.length > 0 || !wasEmpty;
    },
  });
}
