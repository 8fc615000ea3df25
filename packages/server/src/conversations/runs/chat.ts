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
  /** Stops a run on any server. */
  readonly stopEverywhere: (runId: string, reason: string) => void;
  /** How long a request waits for an earlier one with the same idempotency key. */
  readonly waitMs: number;
}

const MAX_ID = 200;
/** The JSON encoding may be larger than the text. */
const MAX_MESSAGE_BYTES = MAX_ENTRY_BYTES / 2;
const MIN_ATTEMPTS = 20;

/** Starts or queues a run, and answers when it is durable. */
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
  for (let attempt = 0; attempt < MIN_ATTEMPTS || context.clock.now() < deadline; attempt++) {
    // A queued run starts after the current head of the log.
    const opened = policy === "reject" ? undefined : await log.open(topicForConv(convId));
    const admitted = store.admit({
      ...caller,
      convId,
      runId: context.newId(),
      message,
      messageId: command.messageId ?? context.newId(),
      key,
      policy,
      cursor: opened && formatCursor({ epoch: opened.epoch, ...opened.head }),
      hasCapacity: runs.hasCapacity,
      trace: command.trace,
    });
    const admission = await admitted.catch(async (error) => {
      const ending = isBusy(error) && context.clock.now() < deadline && (await runEndsLog(log, convId));
      if (!ending) throw error;
      // Clients may reply as soon as they see the end: the run's row is updated a moment after its log.
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
        // Wait for the first request with this key: both get the same response.
        const cursor = admission.cursor ?? (await runs.beginning(admission.runId));
        if (cursor) return answer(admission.runId, cursor);
        await sleep(context.clock, 25);
        break;
      }
      case "lost":
        await takeover.recover(convId);
        break;
      case "waiting":
        if (!runs.hasCapacity) throw atCapacity();
        await takeover.startQueued(convId);
        break;
    }
  }
  const text = "The conversation is being recovered. Try again in a moment.";
  throw new KhalaError("unavailable", text, { retry_after_ms: 1_000 });
}

/** A run that cannot begin is ended before the client gets the error, so that it can send again at once. */
async function begin(context: Context, { runs, takeover }: ChatDeps, run: ClaimedRun): Promise<string> {
  try {
    return await runs.begin(run);
  } catch (error) {
    await takeover
      .recover(run.convId)
      .catch((cause) =>
        context.log.warn({ err: cause.message, run: run.runId }, "a run could not be ended yet"),
      );
    throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof KhalaError && error.code === "conversation_busy";
}

/** Whether the log's last entry is the end of a run. */
async function runEndsLog(log: Log, convId: string): Promise<boolean> {
  const stream = topicForConv(convId);
  const [bounds] = await log.bounds([stream]);
  if (!bounds || bounds.head.seq === 0n) return false;
  const before = { ...bounds.head, seq: bounds.head.seq - 1n };
  const page = await log.read(stream, before, { entries: 1, bytes: MAX_ENTRY_BYTES });
  const last = page?.entries[0];
  return last !== undefined && endsRun(readEntry(last));
}

/** Refuses an invalid conversation id. */
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

function atCapacity(): KhalaError {
  const message = "This server has reached its limit of runs. Try again in a moment.";
  return new KhalaError("overloaded", message, { retry_after_ms: 1_000 });
}
