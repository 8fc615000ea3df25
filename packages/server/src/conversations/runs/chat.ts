import { CONV_ID, KhalaError, topicForConv } from "@khala/contracts";
import type { ChatResponseJson } from "@khala/contracts/conversation/v1";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import type { Caller, ChatCommand } from "../plane.ts";
import type { ClaimedRun, Store } from "../store.ts";
import { endsRun, readEntry } from "../timeline/timeline.ts";
import { MAX_ENTRY_BYTES } from "./run_log.ts";
import type { Runs } from "./runs.ts";
import type { Takeover } from "./takeover.ts";

export interface ChatDeps {
  readonly log: Log;
  readonly store: Store;
  readonly runs: Runs;
  readonly takeover: Takeover;
  /** Stops a run wherever it is. */
  readonly stopEverywhere: (runId: string, reason: string) => void;
  /** How long a request waits for the one that has the same key. */
  readonly waitMs: number;
}

const MAX_ID = 200;
/** JSON may take more bytes than the text has. */
const MAX_MESSAGE_BYTES = MAX_ENTRY_BYTES / 2;
const ROUNDS = 20;

/** Starts a run, or queues it, and answers when that is durable. */
export async function chat(
  context: Context,
  deps: ChatDeps,
  caller: Caller,
  command: ChatCommand,
): Promise<ChatResponseJson> {
  checkCommand(command);
  const { log, store, runs, takeover } = deps;
  const { convId, message, policy = "reject", idempotencyKey: key } = command;
  const answer = (runId: string, cursor: string) => ({ conv_id: convId, run_id: runId, cursor });
  const deadline = context.clock.now() + deps.waitMs;
  for (let round = 0; round < ROUNDS || context.clock.now() < deadline; round++) {
    // What has to wait begins after whatever is in the log now.
    const opened = policy === "reject" ? undefined : await log.open(topicForConv(convId));
    const asked = store.admit({
      ...caller,
      convId,
      runId: context.newId(),
      message,
      messageId: command.messageId ?? context.newId(),
      key,
      policy,
      cursor: opened && formatCursor({ epoch: opened.epoch, ...opened.head }),
      room: runs.room,
      trace: command.trace,
    });
    const admission = await asked.catch(async (error) => {
      const ending = isBusy(error) && context.clock.now() < deadline && (await endsInLog(log, convId));
      if (!ending) throw error;
      // People answer the moment they see the end: the run's row follows its log within a moment.
      await sleep(context.clock, 25);
      return { kind: "ending" as const };
    });
    switch (admission.kind) {
      case "claimed":
        return answer(admission.run.runId, await begin(context, deps, admission.run));
      case "queued":
        if (admission.interrupts) deps.stopEverywhere(admission.interrupts, "interrupted");
        return answer(admission.runId, admission.cursor);
      case "known": {
        // When the request that came first is not done, it decides for both.
        const cursor = admission.cursor ?? (await runs.beginning(admission.runId));
        if (cursor) return answer(admission.runId, cursor);
        await sleep(context.clock, 25);
        break;
      }
      case "lost":
        await takeover.recover(convId);
        break;
      case "waiting":
        if (!runs.room) throw busyServer();
        await takeover.startWaiting(convId);
        break;
    }
  }
  const text = "The conversation is being brought in order. Try again in a moment.";
  throw new KhalaError("unavailable", text, { retry_after_ms: 1_000 });
}

/** A run that cannot begin is ended before its sender is told, so that the message can be sent again at once. */
async function begin(context: Context, { runs, takeover }: ChatDeps, run: ClaimedRun): Promise<string> {
  try {
    return await runs.begin(run);
  } catch (error) {
    await takeover
      .recover(run.convId)
      .catch((cause) => context.log.warn({ err: cause.message, run: run.runId }, "a run is ended later"));
    throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof KhalaError && error.code === "conversation_busy";
}

/** Whether the last thing that was said is the end of a run. */
async function endsInLog(log: Log, convId: string): Promise<boolean> {
  const stream = topicForConv(convId);
  const [bounds] = await log.heads([stream]);
  if (!bounds || bounds.head.seq === 0n) return false;
  const before = { ...bounds.head, seq: bounds.head.seq - 1n };
  const page = await log.read(stream, before, { entries: 1, bytes: MAX_ENTRY_BYTES });
  const last = page?.entries[0];
  return last !== undefined && endsRun(readEntry(last));
}

/** Refuses an id that cannot be one. */
export function checkConvId(convId: string): void {
  if (!CONV_ID.test(convId))
    invalid(
      "conv_id",
      "A conv_id has 1 to 128 letters, digits or . _ ~ - and begins with a letter or a digit.",
    );
}

function checkCommand({ convId, message, idempotencyKey, messageId, policy = "reject" }: ChatCommand): void {
  checkConvId(convId);
  if (typeof message !== "string" || message.trim() === "")
    invalid("message", "Send a message that is not empty.");
  if (message.includes("\0") || !message.isWellFormed())
    invalid("message", "A message may not contain a NUL character or half of a surrogate pair.");
  if (Buffer.byteLength(JSON.stringify(message)) > MAX_MESSAGE_BYTES) {
    const text = `A message has at most ${MAX_MESSAGE_BYTES} bytes. Send a shorter one.`;
    throw new KhalaError("payload_too_large", text, { field: "message" });
  }
  checkId("idempotency_key", idempotencyKey);
  checkId("message_id", messageId);
  if (!["reject", "queue", "interrupt"].includes(policy))
    invalid("policy", 'A policy is "reject", "queue" or "interrupt".');
}

function checkId(field: string, value: string | undefined): void {
  if (value === undefined) return;
  if (typeof value !== "string" || !/^[\x20-\x7e]+$/.test(value) || value.length > MAX_ID)
    invalid(field, `${field} has 1 to ${MAX_ID} printable ASCII characters.`);
}

function invalid(field: string, message: string): never {
  throw new KhalaError("invalid_request", message, { field });
}

function busyServer(): KhalaError {
  const message = "This server has as many runs under way as it may. Try again in a moment.";
  return new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
}
