import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { Clock } from "../../kit/clock.ts";
import { entryText, MAX_ENTRY_BYTES } from "./run_log.ts";
import { splitText } from "./split_text.ts";

export interface PublisherOptions {
  readonly runId: string;
  /** Appends entries, all or none. Called with one batch at a time. */
  readonly append: (entries: readonly string[]) => Promise<unknown>;
  /** An append failed permanently: nothing more is published. */
  readonly onFailure: (error: unknown) => void;
  readonly windowMs: number;
  readonly chars: number;
  /** Called with each entry's time from the engine to the log. */
  readonly onAppended?: (ms: number) => void;
}

type DeltaKind = "text_delta" | "reasoning_delta";

interface Batch {
  readonly kind: DeltaKind;
  readonly messageId: string;
  readonly at: number;
  text: string;
}

interface Queued {
  readonly text: string;
  readonly bytes: number;
  readonly at: number;
}

/** The queue size from which the engine has to wait. */
const MAX_QUEUED_BYTES = 256 << 10;
const MAX_BATCH = 256;

/** Appends a run's events to the log, in order, in the background. Deltas are batched by time and size. */
export class RunPublisher {
  readonly #clock: Clock;
  readonly #options: PublisherOptions;
  #queue: Queued[] = [];
  #bytes = 0;
  #batch: Batch | undefined;
  #cancelWindow: (() => void) | undefined;
  #pumping: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;
  #closed = false;
  #drained: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(clock: Clock, options: PublisherOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Queues the next event. Returns a promise to wait for while the queue is full. */
  push(event: EventJson): Promise<void> | undefined {
    if (this.#closed || this.#failure) return undefined;
    if (event.text_delta) this.#join("text_delta", event.text_delta);
    else if (event.reasoning_delta) this.#join("reasoning_delta", event.reasoning_delta);
    else {
      this.#flush();
      this.#enqueue(event, this.#clock.now());
    }
    if (this.#bytes <= MAX_QUEUED_BYTES) return undefined;
    this.#drained ??= Promise.withResolvers<void>();
    return this.#drained.promise;
  }

  /** Publishes the queue. Resolves when all of it is in the log. */
  async flush(): Promise<void> {
    if (!this.#closed && !this.#failure) this.#flush();
    await this.#pumping;
    if (this.#failure) throw this.#failure.error;
  }

  /** Publishes the queue, then the last event. Resolves when all of it is in the log. */
  async end(event: EventJson): Promise<void> {
    if (!this.#closed && !this.#failure) {
      this.#flush();
      this.#enqueue(event, this.#clock.now());
    }
    this.#close();
    await this.#pumping;
    if (this.#failure) throw this.#failure.error;
  }

  /** Drops the queue. A running append cannot be cancelled; the fencing token decides about it. */
  async abandon(): Promise<void> {
    this.#close();
    this.#batch = undefined;
    this.#drop();
    await this.#pumping;
  }

  #join(kind: DeltaKind, delta: { message_id?: string; text?: string }): void {
    const { message_id: messageId = "", text = "" } = delta;
    const batch = this.#batch;
    const short = text.length < this.#options.chars;
    if (short && batch?.kind === kind && batch.messageId === messageId) batch.text += text;
    else {
      this.#flush();
      this.#batch = { kind, messageId, text, at: this.#clock.now() };
    }
    // The first delta and long ones are sent at once; others within the window are batched.
    if (!this.#cancelWindow || this.#batch!.text.length >= this.#options.chars) this.#flush();
  }

  #flush(): void {
    const batch = this.#batch;
    if (!batch) return;
    this.#batch = undefined;
    for (const text of splitText(batch.text))
      this.#enqueue({ [batch.kind]: { message_id: batch.messageId, text } }, batch.at);
    this.#cancelWindow?.();
    this.#cancelWindow = this.#clock.after(this.#options.windowMs, () => {
      this.#cancelWindow = undefined;
      try {
        this.#flush();
      } catch (error) {
        this.#fail(error);
      }
    });
  }

  #enqueue(event: EventJson, at: number): void {
    const text = entryText(this.#options.runId, event);
    const bytes = Buffer.byteLength(text);
    if (bytes > MAX_ENTRY_BYTES) {
      const message = `An event of the answer has ${bytes} bytes; the limit is ${MAX_ENTRY_BYTES}.`;
      throw new KhalaError("payload_too_large", message);
    }
    this.#queue.push({ text, bytes, at });
    this.#bytes += bytes;
    this.#pumping ??= this.#pump();
  }

  async #pump(): Promise<void> {
    while (this.#queue.length > 0 && !this.#failure) {
      const batch = this.#take();
      try {
        await this.#options.append(batch.map(({ text }) => text));
        // The counter is 0 when the queue was dropped in between.
        for (const { bytes } of batch) this.#bytes = Math.max(0, this.#bytes - bytes);
        const now = this.#clock.now();
        for (const { at } of batch) this.#options.onAppended?.(now - at);
      } catch (error) {
        this.#fail(error);
      }
      if (this.#bytes <= MAX_QUEUED_BYTES) this.#signalDrained();
    }
    // In the same tick as the check: an event in between would never be sent.
    this.#pumping = undefined;
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#drop();
    this.#options.onFailure(error);
  }

  #take(): Queued[] {
    let count = 0;
    let bytes = 0;
    for (const entry of this.#queue) {
      if (count > 0 && (count >= MAX_BATCH || bytes + entry.bytes > MAX_QUEUED_BYTES)) break;
      count++;
      bytes += entry.bytes;
    }
    return this.#queue.splice(0, count);
  }

  #drop(): void {
    this.#queue = [];
    this.#bytes = 0;
    this.#signalDrained();
  }

  #close(): void {
    this.#closed = true;
    this.#cancelWindow?.();
    this.#cancelWindow = undefined;
  }

  #signalDrained(): void {
    this.#drained?.resolve();
    this.#drained = undefined;
  }
}
