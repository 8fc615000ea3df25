import type { FastifyReply } from "fastify";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";

export interface EventStreamOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** The server shuts down. */
  readonly signal: AbortSignal;
  /** When the token expires, in milliseconds; absent when the stream may outlive it. */
  readonly expiresAt?: number;
  /** How long a client may leave waiting data unread. */
  readonly slowMs?: number;
}

const HEADERS = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache, no-transform",
  // Nothing between us and the client may hold events back.
  "x-accel-buffering": "no",
};

/** An answer as server-sent events. Once it is begun it cannot become another status any more. */
export class EventStream {
  readonly #raw: FastifyReply["raw"];
  readonly #context: Context;
  readonly #slowMs: number;
  readonly #over = new AbortController();

  /** Sends the head, with the headers that were set for the reply, such as those for other origins. */
  constructor(reply: FastifyReply, context: Context, options: EventStreamOptions) {
    this.#raw = reply.raw;
    this.#context = context;
    this.#slowMs = options.slowMs ?? 30_000;
    const { expiresAt } = options;
    const expired =
      expiresAt === undefined
        ? () => {}
        : context.clock.after(Math.max(0, expiresAt - context.clock.now()), () => this.cut());
    const onShutdown = () => this.cut();
    options.signal.addEventListener("abort", onShutdown, { once: true });
    reply.hijack();
    this.signal.addEventListener("abort", () => {
      expired();
      options.signal.removeEventListener("abort", onShutdown);
    });
    this.#raw.once("close", () => this.#over.abort());
    for (const [name, value] of Object.entries({ ...reply.getHeaders(), ...HEADERS, ...options.headers }))
      if (value !== undefined) this.#raw.setHeader(name, value);
    this.#raw.flushHeaders();
    if (options.signal.aborted || this.#raw.destroyed) this.cut();
  }

  /** Aborts when the client has disconnected or was cut off. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** Sends events. Resolves when the response accepts more, or the client has disconnected. */
  async send(events: readonly unknown[]): Promise<void> {
    if (events.length > 0) await this.#write(events.map(dataLine).join(""));
  }

  /** Sends a comment, so that no proxy closes a silent connection. */
  async comment(): Promise<void> {
    await this.#write(": still here\n\n");
  }

  /** Ends the answer: it is complete. */
  end(last = ""): void {
    if (!this.signal.aborted) this.#raw.end(last);
  }

  /** Aborts the response, so that the client resumes it. */
  cut(): void {
    this.#over.abort();
    this.#raw.destroy();
  }

  async #write(text: string): Promise<void> {
    if (this.signal.aborted || this.#raw.write(text)) return;
    const drained = new AbortController();
    const onDrain = () => drained.abort();
    this.#raw.once("drain", onDrain);
    await sleep(this.#context.clock, this.#slowMs, AbortSignal.any([this.signal, drained.signal]));
    this.#raw.off("drain", onDrain);
    if (drained.signal.aborted || this.signal.aborted) return;
    this.#context.log.info("a stream's client reads too slowly and was cut");
    this.cut();
  }
}

// JSON has no line breaks of its own, so an event is one line.
function dataLine(event: unknown): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}
