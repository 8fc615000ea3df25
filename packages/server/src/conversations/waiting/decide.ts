import { canonicalJson, KhalaError } from "@khala/contracts";
import type {
  DecideToolRequestJson,
  DecideToolResponseJson,
  EventJson,
  ToolResultJson,
} from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { sha256 } from "../../kit/hash.ts";
import { invalid } from "../../kit/invalid.ts";
import { type ConversationRef, deletedMeanwhile, isId, unlessGone } from "../conversation.ts";
import { publishWithFiles } from "../files/event_files.ts";
import type { Files } from "../files/files.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import { jsonb, MESSAGE, type MessageRow, messageOf } from "../messages/message_row.ts";
import { entryText } from "../runs/run_log.ts";
import { Transcript } from "../timeline/transcript.ts";
import { type AwaitedCall, findCall, isAsked, storeDecision, wakeRun } from "./awaited_calls.ts";

type Tx = Pick<Database, "query">;

export interface DecideDeps {
  readonly database: Database;
  readonly log: Log;
  readonly files: Pick<Files, "putBytes">;
  /** How long a decision waits for the run to be stored as waiting. */
  readonly waitMs: number;
}

/** The decision of a person or a client on a tool call that a run waits for. */
export interface CallDecision {
  readonly callId: string;
  readonly decision: DecideToolRequestJson;
}

/** The result of a decision: the answer, and whether the run continues now. */
export interface Decided {
  readonly answer: DecideToolResponseJson;
  readonly resumes: boolean;
}

const MAX_REASON = 1_000;
const RETRY_MS = 25;

/**
 * Decides a tool call, exactly once: the same decision again gets the same answer, and another one is already_decided. The
 * last decision of a run ends its wait. The conversation's row is locked during this, as for every event without a server.
 */
export async function decideCall(
  { clock }: Pick<Context, "clock">,
  deps: DecideDeps,
  conversation: ConversationRef,
  by: string,
  { callId, decision }: CallDecision,
): Promise<Decided> {
  checkDecision(callId, decision);
  const hash = sha256(canonicalJson(decision));
  const deadline = clock.now() + deps.waitMs;
  for (;;) {
    const found = await deps.database.interactive(async (tx) => {
      const active = await lockConversation(tx, conversation);
      const isRunning = active?.status === "running";
      const isAhead = isRunning && (await isAsked(tx, { ...conversation, runId: active.runId }, callId));
      if (isAhead) return "ahead";
      const call = await findCall(tx, conversation, callId);
      if (!call) throw notFound("tool call that waits", callId);
      return call;
    });
    if (found !== "ahead") {
      if (found.state !== "pending") return { answer: answerAgain(found, callId, hash), resumes: false };
      checkKind(found, decision);
      const event = await eventOf(deps, conversation, found, callId, decision, {
        by,
        at: new Date(clock.now()).toISOString(),
      });
      return deps.database.interactive((tx) => decide(tx, deps, conversation, callId, { by, hash, event }));
    }
    if (clock.now() >= deadline) {
      const message = "The run is still active. Send the decision again in a moment.";
      throw new KhalaError("conversation_busy", message, { retry_after_ms: 1_000 });
    }
    // Clients may decide as soon as they see the question: the run's row is updated a moment after its log.
    await sleep(clock, RETRY_MS);
  }
}

/** Stores the decision in the log, the message and the table, in one transaction. */
async function decide(
  tx: Tx,
  { log }: DecideDeps,
  conversation: ConversationRef,
  callId: string,
  { by, hash, event }: { readonly by: string; readonly hash: string; readonly event: EventJson },
): Promise<Decided> {
  const { org, convId, generation, logName } = conversation;
  await lockConversation(tx, conversation);
  const call = await findCall(tx, conversation, callId);
  if (!call) throw notFound("tool call that waits", callId);
  // Somebody else was faster.
  if (call.state !== "pending") return { answer: answerAgain(call, callId, hash), resumes: false };
  const { runId, messageId } = call;
  const [row] = await tx.query<MessageRow>({
    name: "awaited_call_message",
    text: `SELECT ${MESSAGE}, m.parts FROM runtime.messages m
      WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = $3`,
    values: [org, convId, messageId],
  });
  const transcript = new Transcript(row ? [messageOf(row)] : []);
  transcript.add({ runId, event });
  const { epoch } = await log.open(logName, generation).catch(unlessGone);
  const { head } = await log.append(logName, [entryText(runId, event)], { epoch }).catch(unlessGone);
  await tx.query({
    name: "awaited_call_save",
    text: `UPDATE runtime.messages SET parts = $4, log_epoch = $5, log_seq = $6, log_time = $7, updated_at = now()
      WHERE org_id = $1 AND conv_id = $2 AND message_id = $3`,
    values: [org, convId, messageId, jsonb(transcript.last()[0]?.parts ?? []), epoch, head.seq, head.time],
  });
  const cursor = formatCursor({ epoch, seq: head.seq - 1n, time: head.time });
  const state = stateAfter(event);
  const run = { org, convId, runId };
  await storeDecision(tx, run, callId, { state, contentHash: hash, cursor, decidedBy: by });
  const pending = call.pending - 1;
  if (pending === 0) await tx.query(wakeRun(run));
  return { answer: { run_id: runId, cursor, pending }, resumes: pending === 0 };
}

/** Locks the conversation. Returns its active run. */
async function lockConversation(
  tx: Tx,
  { org, convId, generation }: ConversationRef,
): Promise<{ readonly runId: string; readonly status: string } | undefined> {
  const [row] = await tx.query<{ runId: string | null }>({
    name: "conversation_decide_lock",
    text: `SELECT run_id AS "runId" FROM runtime.conversations
      WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL FOR NO KEY UPDATE`,
    values: [org, convId, generation],
  });
  if (!row) throw deletedMeanwhile();
  if (row.runId === null) return undefined;
  const [run] = await tx.query<{ status: string }>({
    name: "conversation_decide_run",
    text: "SELECT status FROM runtime.conversation_runs WHERE org_id = $1 AND run_id = $2",
    values: [org, row.runId],
  });
  return { runId: row.runId, status: run?.status ?? "" };
}

/** The event of a decision. A large output becomes a file first. */
async function eventOf(
  { files }: DecideDeps,
  conversation: ConversationRef,
  { messageId, tool, waitsFor }: AwaitedCall,
  callId: string,
  { approve, reason, output, error }: DecideToolRequestJson,
  { by, at }: { readonly by: string; readonly at: string },
): Promise<EventJson> {
  const call = { message_id: messageId, tool_call_id: callId };
  if (waitsFor === "approval") {
    const decision = { approved: approve === true, decided_by: by, decided_at: at };
    return { tool_approval_decided: { ...call, decision: { ...decision, ...(reason && { reason }) } } };
  }
  const result: ToolResultJson = {
    ...call,
    tool,
    ...(error !== undefined ? { error } : { output: output! }),
  };
  const events: EventJson[] = [];
  await publishWithFiles(files, conversation, (event) => void events.push(event))({ tool_result: result });
  return events[0]!;
}

function stateAfter({ tool_approval_decided: decided }: EventJson): AwaitedCall["state"] {
  if (!decided) return "answered";
  return decided.decision?.approved ? "approved" : "denied";
}

function answerAgain(call: AwaitedCall, callId: string, hash: string): DecideToolResponseJson {
  const { runId, cursor, state, contentHash, decidedBy, pending } = call;
  if (contentHash === hash) return { run_id: runId, cursor: cursor ?? "", pending };
  const message =
    state === "withdrawn"
      ? `The tool call ${callId} was withdrawn because its run has ended.`
      : `The tool call ${callId} was already ${state} by ${decidedBy ?? "somebody"}. A decision cannot be changed.`;
  throw new KhalaError("already_decided", message);
}

function checkDecision(callId: string, { approve, reason, output, error }: DecideToolRequestJson): void {
  if (!isId(callId)) throw invalid("call_id", "call_id must have 1 to 200 printable ASCII characters.");
  const given = [approve, output, error].filter((value) => value !== undefined);
  if (given.length !== 1) throw invalid("approve", "Send exactly one of approve, output and error.");
  if (reason !== undefined && approve === undefined)
    throw invalid("reason", "reason is only allowed with approve.");
  for (const [field, text = ""] of [["reason", reason] as const, ["error", error] as const])
    if (text.includes("\0") || !text.isWellFormed() || text.length > MAX_REASON)
      throw invalid(field, `${field} must be a string of at most ${MAX_REASON} characters, without NUL.`);
}

function checkKind({ waitsFor }: AwaitedCall, { approve }: DecideToolRequestJson): void {
  if (waitsFor === "approval" && approve === undefined)
    throw invalid("approve", "The tool call waits for an approval. Send approve: true or false.");
  if (waitsFor === "output" && approve !== undefined)
    throw invalid("output", "The tool call waits for the output of a client. Send output or error.");
}
