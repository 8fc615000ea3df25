import type { JsonValue } from "@bufbuild/protobuf";
import type {
  PartJson,
  PendingApprovalJson,
  PendingCallJson,
  TranscriptMessageJson,
  WaitingApprovalJson,
} from "@khala/contracts/conversation/v1";
import type { Database, Statement } from "../../database/database.ts";
import type { ConversationId } from "../conversation.ts";
import { isoTime, jsonb } from "../messages/message_row.ts";

type Tx = Pick<Database, "query">;

/** A run of a conversation. */
interface RunOf extends ConversationId {
  readonly runId: string;
}

/** The calls the waiting run `r` waits for, as JSON. */
export const WAITS_FOR = `CASE WHEN r.status = 'waiting' THEN (
    SELECT jsonb_agg(jsonb_build_object('message_id', w.message_id, 'tool_call_id', w.tool_call_id, 'tool', w.tool,
      'waits_for', w.waits_for) ORDER BY w.created_at, w.tool_call_id)
    FROM runtime.awaited_calls w
    WHERE w.org_id = r.org_id AND w.conv_id = r.conv_id AND w.run_id = r.run_id AND w.state = 'pending'
  ) END`;

/** The tool calls in messages that wait for a decision, one of each id. */
export function pendingCalls(messages: readonly TranscriptMessageJson[]): PendingCallJson[] {
  const calls = messages.flatMap(({ message_id = "", parts = [] }) =>
    parts.flatMap(({ tool }: PartJson) => {
      if (!tool?.waits_for || tool.decision || tool.output !== undefined || tool.error !== undefined)
        return [];
      const { tool_call_id = "", tool: name = "", waits_for } = tool;
      return [{ message_id, tool_call_id, tool: name, waits_for }];
    }),
  );
  return [...new Map(calls.map((call) => [call.tool_call_id, call])).values()];
}

/**
 * Makes a run wait for its tool calls, without a server and a lease. If it was stopped in between, its lease ends now, and a
 * takeover ends it. Returns false then, and when the lease is lost.
 */
export async function parkRun(
  tx: Tx,
  { org, convId, runId, fence }: RunOf & { readonly fence: bigint },
  calls: readonly PendingCallJson[],
): Promise<boolean> {
  const held = await tx.query({
    name: "conversation_park_lock",
    text: `SELECT FROM runtime.conversations
      WHERE org_id = $1 AND conv_id = $2 AND fence = $3 AND run_id = $4 FOR UPDATE`,
    values: [org, convId, fence, runId],
  });
  if (held.length === 0) return false;
  const [run] = await tx.query<{ stop: string | null }>({
    name: "conversation_park_run",
    text: `UPDATE runtime.conversation_runs SET status = 'waiting' WHERE org_id = $1 AND run_id = $2
      RETURNING stop_requested AS stop`,
    values: [org, runId],
  });
  await tx.query({
    name: "conversation_park",
    text: `WITH awaited AS (
        INSERT INTO runtime.awaited_calls (org_id, conv_id, run_id, tool_call_id, message_id, tool, waits_for, input)
        SELECT $1, $2, $3, v ->> 'tool_call_id', v ->> 'message_id', v ->> 'tool', v ->> 'waits_for', (
          SELECT p -> 'tool' -> 'input' FROM runtime.messages m, jsonb_array_elements(m.parts) p
          WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = v ->> 'message_id'
            AND p -> 'tool' ->> 'tool_call_id' = v ->> 'tool_call_id' LIMIT 1)
        FROM jsonb_array_elements($4::jsonb) v
        -- The engine asks again for a call that was decided before.
        ON CONFLICT (org_id, conv_id, run_id, tool_call_id) DO UPDATE SET state = 'pending', waits_for = excluded.waits_for,
          content_hash = NULL, cursor = NULL, decided_by = NULL, decided_at = NULL
      )
      -- With another fence, so that this server's renewal does not bring the lease back.
      UPDATE runtime.conversations SET fence = fence + 1, holder = NULL, lease_until = CASE WHEN $5 THEN now() END, updated_at = now()
      WHERE org_id = $1 AND conv_id = $2`,
    values: [org, convId, runId, jsonb(calls), run!.stop !== null],
  });
  return run!.stop === null;
}

/** Ends the wait of a run: it gets a lease that has ended, so that the next takeover continues it, or ends it. */
export function wakeRun({ org, convId, runId }: RunOf): Statement {
  return {
    name: "conversation_wake",
    text: `UPDATE runtime.conversations SET lease_until = now(), updated_at = now()
      WHERE org_id = $1 AND conv_id = $2 AND run_id = $3 AND lease_until IS NULL`,
    values: [org, convId, runId],
  };
}

/** Ends the waits of a conversation that is deleted. */
export function withdrawCalls({ org, convId }: ConversationId): Statement {
  return {
    name: "conversation_withdraw_calls",
    text: `UPDATE runtime.awaited_calls SET state = 'withdrawn' WHERE org_id = $1 AND conv_id = $2 AND state = 'pending'`,
    values: [org, convId],
  };
}

/** A tool call that a run waits for, or waited for. */
export interface AwaitedCall {
  readonly runId: string;
  readonly messageId: string;
  readonly tool: string;
  readonly input: JsonValue;
  readonly waitsFor: "approval" | "output";
  readonly state: "pending" | "approved" | "denied" | "answered" | "withdrawn";
  readonly contentHash: string | null;
  readonly cursor: string | null;
  readonly decidedBy: string | null;
  /** The number of undecided calls of its run. */
  readonly pending: number;
}

/** The newest call of this id. The caller holds the lock on the conversation's row. */
export async function findCall(
  tx: Tx,
  { org, convId }: ConversationId,
  callId: string,
): Promise<AwaitedCall | undefined> {
  const [call] = await tx.query<AwaitedCall>({
    name: "awaited_call",
    text: `SELECT run_id AS "runId", message_id AS "messageId", tool, input, waits_for AS "waitsFor", state,
        content_hash AS "contentHash", cursor, decided_by AS "decidedBy", (
          SELECT count(*)::int FROM runtime.awaited_calls p
          WHERE p.org_id = $1 AND p.conv_id = $2 AND p.run_id = w.run_id AND p.state = 'pending'
        ) AS pending
      FROM runtime.awaited_calls w WHERE org_id = $1 AND conv_id = $2 AND tool_call_id = $3
      ORDER BY run_id DESC LIMIT 1`,
    values: [org, convId, callId],
  });
  return call;
}

/** Whether a message of the run asks for a decision about this call: its run is about to wait. */
export async function isAsked(tx: Tx, { org, convId, runId }: RunOf, callId: string): Promise<boolean> {
  const [row] = await tx.query<{ asked: boolean }>({
    name: "awaited_call_asked",
    text: `SELECT EXISTS (
        SELECT FROM runtime.messages m, jsonb_array_elements(m.parts) p
        WHERE m.org_id = $1 AND m.run_id = $3 AND m.conv_id = $2 AND p -> 'tool' ->> 'tool_call_id' = $4
          AND p -> 'tool' ? 'waits_for' AND NOT p -> 'tool' ?| ARRAY['decision', 'output', 'error']) AS asked`,
    values: [org, convId, runId, callId],
  });
  return row!.asked;
}

/** A call that waits for an approval, as its document shows it. */
export interface WaitingCall {
  readonly approval: WaitingApprovalJson;
  /** The owner of its conversation. */
  readonly owner: string;
  readonly audience: readonly string[];
}

/** The id of a call's approval. */
export function callName(convId = "", callId = ""): string {
  return `${convId}/${callId}`;
}

/** The tool calls that wait for an approval, oldest first: those of one subject's conversations, or all of the org. */
export async function listApprovals(
  database: Tx,
  org: string,
  subject: string | undefined,
  limit: number,
): Promise<PendingApprovalJson[]> {
  const own =
    subject === undefined
      ? ""
      : `AND (c.owner = $3 OR EXISTS (SELECT FROM runtime.participants p
          WHERE p.org_id = $1 AND p.conv_id = w.conv_id AND p.subject = $3))`;
  const rows = await database.query<Omit<PendingApprovalJson, "kind" | "id">>({
    name: subject === undefined ? "awaited_calls_of_org" : "awaited_calls_of_subject",
    text: `SELECT w.conv_id, w.run_id, w.tool_call_id, w.tool, w.input, ${isoTime("w.created_at")} AS created_at
      FROM runtime.awaited_calls w
      JOIN runtime.conversations c ON c.org_id = $1 AND c.conv_id = w.conv_id AND c.run_id = w.run_id
      WHERE w.org_id || '' = $1::text || '' AND w.org_id = $1 AND w.state = 'pending' AND w.waits_for = 'approval' ${own}
      ORDER BY w.created_at LIMIT $2`,
    values: [org, limit, ...(subject === undefined ? [] : [subject])],
  });
  return rows.map((row) => ({ kind: "chat", id: callName(row.conv_id, row.tool_call_id), ...row }));
}

/** The call that waits for an approval, and who may see that: those who may read the conversation. */
export async function findWaitingCall(
  database: Tx,
  { org, convId }: ConversationId,
  callId: string,
): Promise<WaitingCall | undefined> {
  const [row] = await database.query<
    Pick<WaitingCall, "owner"> & {
      readonly run_id: string;
      readonly tool: string;
      readonly created_at: string;
      readonly others: string[];
    }
  >({
    name: "awaited_call_waiting",
    text: `SELECT w.run_id, w.tool, ${isoTime("w.created_at")} AS created_at, c.owner,
        ARRAY(SELECT p.subject FROM runtime.participants p WHERE p.org_id = $1 AND p.conv_id = $2) AS others
      FROM runtime.awaited_calls w
      JOIN runtime.conversations c ON c.org_id = $1 AND c.conv_id = $2 AND c.run_id = w.run_id
      WHERE w.org_id = $1 AND w.conv_id = $2 AND w.tool_call_id = $3 AND w.state = 'pending' AND w.waits_for = 'approval'`,
    values: [org, convId, callId],
  });
  if (!row) return undefined;
  const { run_id, tool: name, created_at, owner, others } = row;
  const approval = { kind: "chat", id: callName(convId, callId), name, created_at };
  return {
    approval: { ...approval, conv_id: convId, run_id, tool_call_id: callId },
    owner,
    audience: [owner, ...others],
  };
}

/** The ids of a conversation's calls that wait. */
export async function waitingCallIds(database: Tx, { org, convId }: ConversationId): Promise<string[]> {
  const rows = await database.query<{ id: string }>({
    name: "awaited_calls_waiting",
    text: `SELECT tool_call_id AS id FROM runtime.awaited_calls WHERE org_id = $1 AND conv_id = $2 AND state = 'pending'`,
    values: [org, convId],
  });
  return rows.map(({ id }) => id);
}

/** Stores a decision. */
export async function storeDecision(
  tx: Tx,
  { org, convId, runId }: RunOf,
  callId: string,
  decision: Pick<AwaitedCall, "state" | "contentHash" | "cursor" | "decidedBy">,
): Promise<void> {
  await tx.query({
    name: "awaited_call_decide",
    text: `UPDATE runtime.awaited_calls SET state = $5, content_hash = $6, cursor = $7, decided_by = $8, decided_at = now()
      WHERE org_id = $1 AND conv_id = $2 AND run_id = $3 AND tool_call_id = $4`,
    values: [
      org,
      convId,
      runId,
      callId,
      decision.state,
      decision.contentHash,
      decision.cursor,
      decision.decidedBy,
    ],
  });
}
