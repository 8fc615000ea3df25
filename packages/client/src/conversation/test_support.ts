import { KhalaError } from "@khala/contracts";
import type { EventJson } from "@khala/contracts/conversation/v1";
import type { Channel, ChannelHandlers, Connection, ConnectionStatus } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Answer, Http, RequestOptions } from "../http.ts";
import { type Conversation, type ConversationsOptions, openConversations } from "./conversations.ts";
import { socketConversationSource } from "./socket_source.ts";
import type { ConversationFrame } from "./source.ts";
import { EMPTY, reduce, type Transcript } from "./transcript.ts";

/** An environment whose clock the test advances. */
export class FakeEnvironment implements Environment {
  #now = 1_000;
  #ids = 0;
  readonly #timers = new Set<{ readonly at: number; readonly fire: () => void }>();

  now(): number {
    return this.#now;
  }

  random(): number {
    return 0.5;
  }

  newId(): string {
    return `id-${++this.#ids}`;
  }

  timer(ms: number, fire: () => void): () => void {
    const timer = { at: this.#now + ms, fire };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  get timers(): number {
    return this.#timers.size;
  }

  pass(ms: number): void {
    const end = this.#now + ms;
    for (;;) {
      const next = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.#timers.delete(next);
      this.#now = next.at;
      next.fire();
    }
    this.#now = end;
  }

  openSocket(): never {
    throw new Error("There is no socket here.");
  }

  fetch(): never {
    throw new Error("There is no network here.");
  }
}

/** A requested channel, and the server's actions on it. */
export class FakeChannel implements Channel {
  readonly topic: string;
  readonly handlers: ChannelHandlers;
  left = false;

  constructor(topic: string, handlers: ChannelHandlers) {
    this.topic = topic;
    this.handlers = handlers;
  }

  /** The server takes the join; the params that it was made with. */
  join(): Record<string, unknown> {
    const params = this.handlers.params();
    this.handlers.onJoined({});
    return params;
  }

  frame(frame: ConversationFrame | object): void {
    this.handlers.onEvent("frame", frame);
  }

  /** Entries of the log, numbered from `seq`. */
  events(seq: number, runId: string, ...events: readonly EventJson[]): void {
    for (const [i, event] of events.entries())
      this.frame({ type: "event", seq: String(seq + i), cursor: `e-${seq + i}`, run_id: runId, event });
  }

  push(): Promise<unknown> {
    return Promise.reject(new KhalaError("unavailable", "Nothing is pushed here."));
  }

  leave(): void {
    this.left = true;
  }
}

/** A connection whose channels a test plays. */
export class FakeConnection implements Connection {
  readonly channels: FakeChannel[] = [];
  readonly #listeners = new Set<() => void>();
  #status: ConnectionStatus = { state: "live", since: 0, attempt: 0, role: "own" };

  get listeners(): number {
    return this.#listeners.size;
  }

  /** The channel that was asked for last. */
  get channelNow(): FakeChannel {
    return this.channels.at(-1)!;
  }

  status(): ConnectionStatus {
    return this.#status;
  }

  become(status: Partial<ConnectionStatus>): void {
    this.#status = { ...this.#status, ...status };
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  channel(topic: string, handlers: ChannelHandlers): FakeChannel {
    const channel = new FakeChannel(topic, handlers);
    this.channels.push(channel);
    return channel;
  }

  connect(): void {}
  pause(): void {}
  close(): void {}
}

/** A request that the test answers. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly options: RequestOptions;
  answer(body: unknown, status?: number): void;
  refuse(error: KhalaError): void;
}

/** HTTP whose answers a test gives. */
export class FakeHttp implements Http {
  readonly asked: Asked[] = [];

  request(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const answer = (body: unknown, status = 200) => resolve({ status, headers: new Headers(), body });
    this.asked.push({ method, path, options, answer, refuse: reject });
    options.signal?.addEventListener("abort", () =>
      reject(new KhalaError("unavailable", "The request was aborted.")),
    );
    return promise;
  }

  /** The request that was made last. */
  get last(): Asked {
    return this.asked.at(-1)!;
  }
}

/** Lets everything that is settled be handled. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** An entry of a log. */
export interface Entry {
  readonly runId: string;
  readonly event: EventJson;
}

const AT = "2026-11-15T08:00:00Z";
export const started: EventJson = { run_started: { subject: "ann", started_at: AT } };
export const finished: EventJson = { run_finished: { reason: "stop" } };

/** More text of a message. */
export function delta(text: string, message_id = "m"): EventJson {
  return { text_delta: { message_id, text } };
}

/** A user's message. */
export function asked(text: string, message_id = "u"): EventJson {
  return { message: { message_id, role: "user", text, created_at: AT } };
}

/** Entries of one run. */
export function ofRun(runId: string, ...events: readonly EventJson[]): Entry[] {
  return events.map((event) => ({ runId, event }));
}

/** An entry as the socket sends it. */
export function eventFrame({ runId, event }: Entry, seq: number): ConversationFrame {
  return { type: "event", seq: String(seq), cursor: `e-${seq}`, run_id: runId, event };
}

/** A whole log, frame by frame. */
export function framesOf(log: readonly Entry[]): ConversationFrame[] {
  return log.map((entry, i) => eventFrame(entry, i + 1));
}

/** The state after some frames. */
export function apply(frames: readonly ConversationFrame[]): Transcript {
  return frames.reduce(reduce, EMPTY);
}

/** A conversation of real parts, on a server that a test plays. */
export function handConversation(options: ConversationsOptions = {}) {
  const connection = new FakeConnection();
  const http = new FakeHttp();
  const environment = new FakeEnvironment();
  const conversations = openConversations(connection, http, environment, options);
  conversations.setSource(socketConversationSource(connection));
  const conversation: Conversation = conversations.get("c");
  return {
    connection,
    http,
    environment,
    conversations,
    conversation,
    /** Follows, and has the server send the earlier messages. */
    joined(...messages: readonly object[]): () => void {
      const stop = conversation.subscribe(() => {});
      const { channelNow } = connection;
      channelNow.join();
      channelNow.frame({ type: "hello", conv_id: "c", cursor: "e-0", run: null });
      channelNow.frame({ type: "snapshot", messages, cursor: "e-0" });
      return stop;
    },
    /** The text and the status of each shown message. */
    texts: () =>
      conversation
        .state()
        .messages.map(({ parts = [], status }) => [parts.map(({ text }) => text).join(""), status]),
  };
}
