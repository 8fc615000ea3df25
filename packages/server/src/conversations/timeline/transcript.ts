import { foldMessages } from "@khala/contracts";
import type { PendingCallJson, RunFailedJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { endsRun, messageIdOf, type TimelineEvent } from "./timeline.ts";

/** How a run ended, as in a RunJson. */
export interface RunEnd {
  readonly status: "finished" | "failed" | "stopped";
  readonly error?: RunFailedJson;
}

/** The messages that events make. */
export function messagesOf(
  events: readonly Pick<TimelineEvent, "runId" | "event">[],
): TranscriptMessageJson[] {
  const transcript = new Transcript();
  for (const event of events) transcript.add(event);
  return transcript.last();
}

/** Folds events into messages, and follows which run is active. */
export class Transcript {
  #messages: readonly TranscriptMessageJson[];
  readonly #ended = new Map<string, RunEnd>();
  readonly #waiting = new Map<string, readonly PendingCallJson[]>();
  #running: string | undefined;

  /** Continues from these messages. */
  constructor(messages: readonly TranscriptMessageJson[] = []) {
    this.#messages = messages;
  }

  /** The active run. */
  get running(): string | undefined {
    return this.#running;
  }

  /** How a run ended, if its end was seen. */
  endOf(runId: string): RunEnd | undefined {
    return this.#ended.get(runId);
  }

  /** The calls a run waits for, if it is waiting. */
  waitingFor(runId: string): readonly PendingCallJson[] | undefined {
    return this.#waiting.get(runId);
  }

  has(messageId: string): boolean {
    return this.#messages.some(({ message_id }) => message_id === messageId);
  }

  /** The last messages, oldest first. */
  last(count = Number.POSITIVE_INFINITY): TranscriptMessageJson[] {
    return this.#messages.slice(Math.max(0, this.#messages.length - count));
  }

  /** Applies the next event. Returns the id of the message that it changed, if it changed only one. */
  add({ runId, event }: Pick<TimelineEvent, "runId" | "event">): string | undefined {
    // A run is active from its first event, even if its start was trimmed.
    // The end of another one is that of a cancelled queued message.
    if (runId !== "" && !this.#ended.has(runId) && !endsRun({ event })) this.#running = runId;
    this.#messages = foldMessages(this.#messages, runId, event);
    if (event.run_waiting) this.#waiting.set(runId, event.run_waiting.calls ?? []);
    if (event.run_resumed) this.#waiting.delete(runId);
    if (event.run_finished) this.#end(runId, { status: "finished" });
    if (event.run_failed) this.#end(runId, { status: "failed", error: event.run_failed });
    if (event.run_stopped) this.#end(runId, { status: "stopped" });
    return messageIdOf(event);
  }

  #end(runId: string, end: RunEnd): void {
    this.#ended.set(runId, end);
    this.#waiting.delete(runId);
    if (this.#running === runId) this.#running = undefined;
  }
}
