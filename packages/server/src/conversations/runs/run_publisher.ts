import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { Clock } from "../../kit/clock.ts";
import { entryText, MAX_ENTRY_BYTES } from "./run_log.ts";

export interface PublisherOptions {
  readonly runId: string;
  /** Appends entries, all or none. Called for one batch at a time. */
  readonly append: (entries: readonly string[]) => Promise<unknown>;
  /** An append failed for good: nothing more is published. */
  readonly onFailure: (error: unknown) => void;
  readonly windowMs: number;
  readonly chars: number;
  /** How long entries took from the engine to the log. */
  readonly onAppended?: (ms: number) => void;
}

type DeltaKind = "text_delta" | "reasoning_delta";

interface Joined {
  readonly kind: DeltaKind;
  readonly messageId: string;
  readonly at: number;
  text: string;
}

interface Waiting {
  readonly text: string;
  readonly bytes: number;
  readonly at: number;
}

/** What may wait for the log before the engine has to. */
const MAX_WAITING_BYTES = 256 << 10;
const MAX_BATCH = 256;

/** Brings a run's events into the log, in order, without making the engine wait for it: deltas that come close together are joined. */
export class RunPublisher {
  readonly #clock: Clock;
  readonly #options: PublisherOptions;
  #waiting: Waiting[] = [];
  #bytes = 0;
  #joined: Joined | undefined;
  #cancelWindow: (() => void) | undefined;
  #pumping: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;
  #closed = false;
  #room: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;

  constructor(clock: Clock, options: PublisherOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Takes the next event. Answers nothing, or a promise to wait for when too much is on its way. */
  push(event: EventJson): Promise<void> | undefined {
    if (this.#closed || this.#failure) return undefined;
    if (event.text_delta) this.#join("text_delta", event.text_delta);
    else if (event.reasoning_delta) this.#join("reasoning_delta", event.reasoning_delta);
    else {
      this.#flush();
      this.#enqueue(event, this.#clock.now());
    }
    if (this.#bytes <= MAX_WAITING_BYTES) return undefined;
    this.#room ??= Promise.withResolvers<void>();
    return this.#room.promise;
  }

  /** Publishes what waits, then the last event. Resolves when everything is in the log. */
  async end(event: EventJson): Promise<void> {
    if (!this.#closed && !this.#failure) {
      this.#flush();
      this.#enqueue(event, this.#clock.now());
    }
    this.#close();
    await this.#pumping;
    if (this.#failure) throw this.#failure.error;
  }

  /** Drops what waits. An append under way is not called back; the fence decides about it. */
  async abandon(): Promise<void> {
    this.#close();
    this.#joined = undefined;
    this.#drop();
    await this.#pumping;
  }

  #join(kind: DeltaKind, delta: { message_id?: string; text?: string }): void {
    const { message_id: messageId = "", text = "" } = delta;
    const joined = this.#joined;
    const short = text.length < this.#options.chars;
    if (short && joined?.kind === kind && joined.messageId === messageId) joined.text += text;
    else {
      this.#flush();
      this.#joined = { kind, messageId, text, at: this.#clock.now() };
    }
    // The first one goes at once, and so does a long one; what follows within the window is joined.
    if (!this.#cancelWindow || this.#joined!.text.length >= this.#options.chars) this.#flush();
  }

  #flush(): void {
    const joined = this.#joined;
    if (!joined) return;
    this.#joined = undefined;
    this.#enqueue({ [joined.kind]: { message_id: joined.messageId, text: joined.text } }, joined.at);
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
      const message = `An event of the answer has ${bytes} bytes; at most ${MAX_ENTRY_BYTES} are possible.`;
      throw new KhalaError("payload_too_large", message);
    }
    this.#waiting.push({ text, bytes, at });
    this.#bytes += bytes;
    this.#pumping ??= this.#pump();
  }

  async #pump(): Promise<void> {
    while (this.#waiting.length > 0 && !this.#failure) {
      const batch = this.#take();
      try {
        await this.#options.append(batch.map(({ text }) => text));
        // Nothing is left to count of a run that was dropped meanwhile.
        for (const { bytes } of batch) this.#bytes = Math.max(0, this.#bytes - bytes);
        const now = this.#clock.now();
        for (const { at } of batch) this.#options.onAppended?.(now - at);
      } catch (error) {
        this.#fail(error);
      }
      if (this.#bytes <= MAX_WAITING_BYTES) this.#giveRoom();
    }
    // In the same turn as the check, or what comes in between would wait for ever.
    this.#pumping = undefined;
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#drop();
    this.#options.onFailure(error);
  }

  #take(): Waiting[] {
    let count = 0;
    let bytes = 0;
    for (const entry of this.#waiting) {
      if (count > 0 && (count >= MAX_BATCH || bytes + entry.bytes > MAX_WAITING_BYTES)) break;
      count++;
      bytes += entry.bytes;
    }
    return this.#waiting.splice(0, count);
  }

  #drop(): void {
    this.#waiting = [];
    this.#bytes = 0;
    this.#giveRoom();
  }

  #close(): void {
    this.#closed = true;
    this.#cancelWindow?.();
    this.#cancelWindow = undefined;
  }

  #giveRoom(): void {
    this.#room?.resolve();
    this.#room = undefined;
  }
}
