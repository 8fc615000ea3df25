import { phoenix } from "@khala/contracts";
import type { Environment, Signal, SocketLike } from "../environment.ts";
import type { LogEvent } from "../log.ts";
import { type OwnConnection, openConnection } from "./connection.ts";
import { type TokenSource, Tokens } from "./tokens.ts";

/** A signal that a test gives. */
class FakeSignal implements Signal {
  #value: boolean;
  readonly #listeners = new Set<() => void>();

  constructor(value: boolean) {
    this.#value = value;
  }

  get(): boolean {
    return this.#value;
  }

  set(value: boolean): void {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

/** A socket whose server a test plays. */
export class FakeSocket implements SocketLike {
  readonly url: string;
  readonly protocols: readonly string[];
  readonly sent: phoenix.Message[] = [];
  closed = false;
  /** Whether heartbeats are answered. */
  alive = false;
  onopen: (() => void) | null = null;
  onmessage: ((event: { readonly data: unknown }) => void) | null = null;
  onclose: ((event: { readonly code: number; readonly reason: string }) => void) | null = null;
  onerror: (() => void) | null = null;

  constructor(url: string, protocols: readonly string[]) {
    this.url = url;
    this.protocols = protocols;
  }

  send(text: string): void {
    const message = phoenix.decodeText(text);
    this.sent.push(message);
    if (this.alive && message.event === "heartbeat") this.reply(message);
  }

  close(): void {
    this.closed = true;
  }

  /** The last sent message with this name. */
  last(event: string): phoenix.Message {
    return this.sent.findLast((message) => message.event === event)!;
  }

  push(topic: string, event: string, payload: unknown, joinRef: string | null = null): void {
    this.onmessage?.({ data: phoenix.encodeText({ joinRef, ref: null, topic, event, payload }) });
  }

  reply({ joinRef, ref, topic }: phoenix.Message, response: unknown = {}, status = "ok"): void {
    const payload = { status, response };
    this.onmessage?.({ data: phoenix.encodeText({ joinRef, ref, topic, event: "phx_reply", payload }) });
  }

  end(code = 1006, reason = ""): void {
    this.onclose?.({ code, reason });
  }
}

/** An environment whose clock the test advances, and may make jump. */
export class FakeEnvironment implements Environment {
  readonly sockets: FakeSocket[] = [];
  readonly online = new FakeSignal(true);
  readonly visible = new FakeSignal(true);
  randomly = 0.5;
  /** The offset of the clock from the elapsed time. */
  jumped = 0;
  #time = 1_000_000;
  #ids = 0;
  readonly #timers = new Set<{ readonly at: number; readonly fire: () => void }>();

  now(): number {
    return this.#time + this.jumped;
  }

  readonly random = () => this.randomly;

  newId(): string {
    return `id-${++this.#ids}`;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#time + ms, fire };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  yieldControl(): Promise<void> {
    return settled();
  }

  get timers(): number {
    return this.#timers.size;
  }

  /** Advances time; the effects of a timer settle before the next one. */
  async pass(ms: number): Promise<void> {
    const end = this.#time + ms;
    await settled();
    for (;;) {
      const due = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.#timers.delete(due);
      this.#time = Math.max(this.#time, due.at);
      due.fire();
      await settled();
    }
    this.#time = end;
  }

  openSocket(url: string, protocols: string[]): FakeSocket {
    const socket = new FakeSocket(url, protocols);
    this.sockets.push(socket);
    return socket;
  }

  /** The socket that was opened last. */
  get socket(): FakeSocket {
    return this.sockets.at(-1)!;
  }

  fetch(): never {
    throw new Error("There is no network here.");
  }
}

/** Lets everything that is settled be handled. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A token of ours, unsigned. Times are in seconds. */
export function jwt(claims: object): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg: "none" })}.${part({ sub: "ada", oa_org_id: "acme", ...claims })}.`;
}

/** A connection in a place that a test plays. */
export function testConnection(
  token: TokenSource = "token",
  diagnose: Parameters<typeof openConnection>[0]["diagnose"] = async () => undefined,
) {
  const place = new FakeEnvironment();
  const events: LogEvent[] = [];
  const tokens = new Tokens(token, place);
  const connection: OwnConnection = openConnection({
    url: "http://khala.test",
    environment: place,
    tokens,
    diagnose,
    log: (event) => events.push(event),
  });
  return {
    place,
    events,
    tokens,
    connection,
    /** Connects, up to live. */
    async live(): Promise<FakeSocket> {
      connection.connect();
      await settled();
      place.socket.onopen?.();
      return place.socket;
    },
  };
}
