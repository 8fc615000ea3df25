import { CONV_ID, KhalaError } from "@khala/contracts";
import type { ChatResponseJson, PartJson } from "@khala/contracts/conversation/v1";
import type { Caller } from "../../access/viewer.ts";
import type { StoredBytes } from "../../database/stored_bytes.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { invalid } from "../../kit/invalid.ts";
import type { RateQuota } from "../../kit/quota.ts";
import { type ConversationRef, isId } from "../conversation.ts";
import { type Cursor, formatCursor } from "../log/cursor.ts";
import { type Log, StreamGone } from "../log/log.ts";
import { storeBegunMessages } from "../messages/begun_messages.ts";
import type { Branches } from "../messages/branches.ts";
import type { ChatCommand } from "../plane.ts";
import type { Admission, ClaimedRun } from "../queue/admission.ts";
import type { Queue } from "../queue/queue.ts";
import type { Store } from "../store.ts";
import { endsRun, readEntry } from "../timeline/timeline.ts";
import { MAX_ENTRY_BYTES } from "./run_log.ts";
import type { Runs } from "./runs.ts";
import type { Takeover } from "./takeover.ts";

export interface ChatDeps {
  readonly log: Log;
  readonly store: Store;
  readonly runs: Runs;
  readonly takeover: Takeover;
  readonly queue: Pick<Queue, "announce">;
  readonly branches: Pick<Branches, "announce">;
  /** The messages of each org. */
  readonly quota: RateQuota;
  readonly stored?: StoredBytes | undefined;
  /** Stops a run on any server. */
  readonly stopEverywhere: (runId: string, reason: string) => void;
  /** How long a request waits for an earlier one with the same idempotency key. */
  readonly waitMs: number;
}

/** The JSON encoding may be larger than the text. */
const MAX_MESSAGE_BYTES = MAX_ENTRY_BYTES / 2;
const MIN_ATTEMPTS = 20;
const OVERDUE_CHECK_MS = 100;
/** How often it is checked whether the row of an ended run is updated. */
export const END_CHECK_MS = 25;
/** The part of the log searched for a run's end: the last entries, or those of the last second. */
const LAST_ENTRIES = 20n;
const LAST_MS = 1_000;
const MAX_LAST = 200;

/** Starts or queues a run, and answers when it is durable. */
export async function chat(
  context: Context,
  deps: ChatDeps,
  caller: Caller,
  command: ChatCommand,
  /** The hash of the content as it was sent, for a repeated idempotency key. */
  hash: string,
): Promise<ChatResponseJson> {
  checkCommand(command);
  deps.quota.take(caller.org);
  deps.stored?.take(caller.org, "conversations", Buffer.byteLength(command.message));
  const { log, runs, takeover, queue } = deps;
  const { convId } = command;
  const conversation = { org: caller.org, convId };
  const answer = (runId: string, messageId: string, cursor: string) => ({
    conv_id: convId,
    run_id: runId,
    cursor,
    message_id: messageId,
  });
  const deadline = context.clock.now() + deps.waitMs;
  for (let attempt = 0; attempt < MIN_ATTEMPTS || context.clock.now() < deadline; attempt++) {
    const admission = await admit(context, deps, caller, command, hash);
    switch (admission.kind) {
      case "claimed":
        return answer(
          admission.run.runId,
          admission.run.messageId,
          await begin(context, deps, admission.run),
        );
      case "queued":
        if (admission.interrupts) deps.stopEverywhere(admission.interrupts, "interrupted");
        await queue.announce(admission.conversation);
        if (admission.wakes) await takeover.recover(admission.conversation);
        return answer(admission.runId, admission.messageId, admission.cursor);
      case "known": {
        // Wait for the first request with this key: both get the same response.
        const cursor = admission.cursor ?? (await runs.beginning(admission.runId));
        if (cursor) return answer(admission.runId, admission.messageId, cursor);
        await sleep(context.clock, END_CHECK_MS);
        break;
      }
      case "busy":
        // Clients may reply as soon as they see the end: the run's row is updated a moment after its log.
        if (context.clock.now() >= deadline) throw busy(admission.runId);
        if (admission.endsInMs !== undefined) {
          // It ends, or its server renews the lease, or the run is taken over.
          await sleep(context.clock, Math.min(Math.max(admission.endsInMs, END_CHECK_MS), OVERDUE_CHECK_MS));
          break;
        }
        if (!(await hasEndInLog(log, admission.conversation, admission.runId))) throw busy(admission.runId);
        await sleep(context.clock, END_CHECK_MS);
        break;
      case "lost":
        await takeover.recover(conversation);
        break;
      case "waiting":
        runs.requireCapacity(caller.org);
        await takeover.startQueued(conversation);
        break;
      case "unannounced":
        await deps.branches.announce(admission.conversation);
        break;
      case "replaced":
        break;
    }
  }
  const text = "The conversation is being recovered. Try again in a moment.";
  throw new KhalaError("unavailable", text, { retry_after_ms: 1_000 });
}

async function admit(
  context: Context,
  { log, store, runs }: ChatDeps,
  caller: Caller,
  command: ChatCommand,
  hash: string,
): Promise<Admission> {
  const {
    convId,
    messageId,
    policy = "reject",
    idempotencyKey: key,
    message,
    parts,
    params,
    tools,
    trace,
  } = command;
  const { regenerate, edit, resent, answerId, follows } = command;
  const runId = context.newId();
  let opened: { generation: bigint; cursor: string } | undefined;
  let head: Cursor | undefined;
  if (policy !== "reject") {
    // A queued run starts after the current head of the log.
    const { generation, logName } = await store.ensure(caller, "conversation.write", convId);
    const bounds = await log.open(logName, generation).catch(unlessGone);
    if (!bounds) return { kind: "replaced" };
    head = { epoch: bounds.epoch, ...bounds.head };
    opened = { generation, cursor: formatCursor(head) };
  }
  const run = {
    ...{ caller, convId, runId, message, parts, params, tools, key, policy, opened, trace },
    ...{ regenerate, edit, resent, answerId, follows },
  };
  let claimed = false;
  try {
    const admission = await store.admit({
      ...run,
      messageId: messageId ?? context.newId(),
      contentHash: hash,
      storeBegun: async (tx, active) => head && storeBegunMessages(tx, log, active, head),
      reserve: () => runs.reserve({ org: caller.org, runId }),
    });
    claimed = admission.kind === "claimed";
    return admission;
  } finally {
    if (!claimed) runs.cancel(runId);
  }
}

/** The conversation was deleted, and its log belongs to the next one of its name. */
function unlessGone(error: unknown): undefined {
  if (!(error instanceof StreamGone)) throw error;
}

/** A run that cannot begin is ended before the client gets the error, so that it can send again at once. */
async function begin(context: Context, { runs, takeover }: ChatDeps, run: ClaimedRun): Promise<string> {
  try {
    return await runs.begin(run);
  } catch (error) {
    await takeover
      .recover(run)
      .catch((cause) =>
        context.log.warn({ err: cause.message, run: run.runId }, "a run could not be ended yet"),
      );
    throw error;
  }
}

function busy(runId: string): KhalaError {
  const message = `The conversation is busy with run ${runId}. Wait for its end, decide its pending tool call, stop it, or send with the policy "queue" or "interrupt".`;
  return new KhalaError("conversation_busy", message, { retry_after_ms: 1_000 });
}

/** Whether the run's end is among the log's last entries: others may have written after it. */
export async function hasEndInLog(
  log: Log,
  { logName, generation }: ConversationRef,
  runId: string,
): Promise<boolean> {
  const bounds = await log.open(logName, generation).catch(unlessGone);
  if (!bounds || bounds.head.seq === 0n) return false;
  const { seq, time } = bounds.head;
  // Postgres finds entries by their sequence, Redis by their time.
  const before = { seq: seq > LAST_ENTRIES ? seq - LAST_ENTRIES : 0n, time: Math.max(0, time - LAST_MS) };
  const page = await log.read(logName, before, { entries: MAX_LAST, bytes: 4 * MAX_ENTRY_BYTES });
  return (page?.entries ?? []).some((entry) => {
    const event = readEntry(entry);
    return event.runId === runId && endsRun(event);
  });
}

/** Refuses an invalid conversation id. */
export function checkConvId(convId: string): void {
  if (!CONV_ID.test(convId))
    throw invalid(
      "conv_id",
      "conv_id must have 1 to 128 letters, digits or . _ ~ - and start with a letter or digit.",
    );
}

/** Refuses a text that cannot be a message. One with files may be empty. */
export function checkMessage(message: string, parts?: readonly PartJson[]): void {
  if (typeof message !== "string" || (message.trim() === "" && !parts?.some(({ file }) => file)))
    throw invalid("message", "The message is empty. Send text.");
  if (message.includes("\0") || !message.isWellFormed())
    throw invalid("message", "A message may not contain a NUL character or half of a surrogate pair.");
  if (Buffer.byteLength(JSON.stringify(parts ?? message)) > MAX_MESSAGE_BYTES) {
    const text = `A message may have at most ${MAX_MESSAGE_BYTES} bytes. Send a shorter one.`;
    throw new KhalaError("payload_too_large", text, { field: "message" });
  }
}

function checkCommand(command: ChatCommand): void {
  const { convId, message, parts, idempotencyKey, messageId, policy = "reject" } = command;
  checkConvId(convId);
  if (command.regenerate === undefined && command.resent !== "regenerate") checkMessage(message, parts);
  checkId("regenerate", command.regenerate);
  checkId("edit", command.edit);
  checkId("idempotency_key", idempotencyKey);
  checkId("message_id", messageId);
  if (!["reject", "queue", "interrupt"].includes(policy))
    throw invalid("policy", 'policy must be "reject", "queue" or "interrupt".');
}

/** Refuses an id that cannot be stored. */
export function checkId(field: string, value: string | undefined): void {
  if (value === undefined) return;
  if (typeof value !== "string" || !isId(value))
    throw invalid(field, `${field} must have 1 to 200 printable ASCII characters.`);
}
