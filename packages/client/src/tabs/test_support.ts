import { randomUUID } from "node:crypto";
import { expect, vi } from "vitest";
import type { Channel, Connection, ConnectionStatus } from "../connection/port.ts";
import { FakeEnvironment } from "../connection/test_support.ts";
import { openConversations } from "../conversation/conversations.ts";
import type { ConversationFrame, ConversationSink, ConversationSource } from "../conversation/source.ts";
import type { BroadcastLike, LocksLike } from "../environment.ts";
import type { Http } from "../http.ts";
import type { LogEvent } from "../log.ts";
import { memory } from "../storage/memory.ts";
import type { Storage } from "../storage/storage.ts";
import type { TopicSink, TopicSource } from "../sync/source.ts";
import { openSync } from "../sync/sync_plane.ts";
import { at, stored, update } from "../sync/test_support.ts";
import { openTabs } from "./tabs.ts";

interface Place {
  readonly grant: () => void;
  readonly rob: () => void;
}

/** Locks of one browser: granted in the order in which they were asked for, unless one is stolen. */
export class Locks {
  readonly #queues = new Map<string, Place[]>();

  /** The locks as one tab sees them. */
  of(dead: AbortSignal): LocksLike {
    return {
      request: (name, options, hold) =>
        new Promise<void>((resolve, reject) => {
          const signal = "signal" in options ? options.signal : undefined;
          const queue = this.#queues.get(name) ?? [];
          this.#queues.set(name, queue);
          const leave = () => {
            const at = queue.indexOf(place);
            if (at >= 0) queue.splice(at, 1);
            if (at === 0) queue[0]?.grant();
          };
          // The browser releases the locks of a dead tab, and drops its requests.
          dead.addEventListener("abort", leave, { once: true });
          const place: Place = {
            grant: () => {
              signal?.removeEventListener("abort", giveUp);
              hold().then(leave).then(resolve, reject);
            },
            rob: () => reject(new DOMException("Lock broken by another request.", "AbortError")),
          };
          const giveUp = () => {
            leave();
            reject(signal?.reason);
          };
          signal?.addEventListener("abort", giveUp, { once: true });
          if (signal) queue.push(place);
          else {
            queue.shift()?.rob();
            queue.unshift(place);
          }
          if (queue[0] === place) place.grant();
        }),
    };
  }
}

/** A server with one topic, `t`, and one conversation, `c`, and how many tabs it serves. */
export class FakeServer {
  readonly documents = new Map<string, number>();
  readonly #updates: ReturnType<typeof update>[] = [];
  readonly #wakes = new Set<() => void>();
  readonly #frames: ConversationFrame[] = [];
  /** Positions that tabs went on from. */
  readonly resumed: (number | undefined)[] = [];
  followers = 0;
  listeners = 0;
  /** While it is set nothing is sent. */
  #slow = false;

  set slow(slow: boolean) {
    this.#slow = slow;
    for (const wake of [...this.#wakes]) wake();
  }

  get head(): number {
    return this.#updates.length;
  }

  write(key: string): void {
    const version = (this.documents.get(key) ?? 0) + 1;
    this.documents.set(key, version);
    this.#updates.push(update(key, version));
    for (const wake of [...this.#wakes]) wake();
  }

  /** The documents of a complete tab. */
  get all(): Record<string, number> {
    return Object.fromEntries([...this.documents].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** A word of the run that never ends. */
  say(text: string): void {
    const seq = String(this.#frames.length + 1);
    const event = { text_delta: { message_id: "m", text } };
    this.#frames.push({ type: "event", seq, cursor: `c-${seq}`, run_id: "r", event } as ConversationFrame);
    for (const wake of [...this.#wakes]) wake();
  }

  readonly topics: TopicSource = {
    follow: (_topic, sink, signal) => {
      if (signal.aborted) return;
      this.followers++;
      signal.addEventListener("abort", () => this.followers--);
      const position = sink.position();
      this.resumed.push(position && Number(position.watermark));
      this.#run(signal, () => this.#feed(sink, signal));
    },
  };

  readonly conversations: ConversationSource = {
    follow: (_name, sink, signal) => {
      if (signal.aborted) return;
      this.listeners++;
      signal.addEventListener("abort", () => this.listeners--);
      sink.health(true);
      const seq = Number((sink.position() ?? "c-0").slice(2));
      let next = seq;
      this.#run(signal, async () => {
        while (next < this.#frames.length) (sink as ConversationSink).frame(this.#frames[next++]!);
      });
    },
  };

  async #feed(sink: TopicSink, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !this.#slow) {
      const position = sink.position();
      const from = Number(position?.watermark ?? 0);
      const head = this.head;
      if (!position)
        await sink.replace(
          [...this.documents].map(([key, version]) => stored(key, version)),
          at(head),
        );
      else if (from < head) await sink.apply(this.#updates.slice(from, head), at(head));
      else return sink.phase("live");
    }
  }

  /** Runs now and after every change, one run after the other. */
  #run(signal: AbortSignal, work: () => Promise<void>): void {
    let last = Promise.resolve();
    const wake = () => {
      last = last.then(() => (signal.aborted ? undefined : work()));
    };
    this.#wakes.add(wake);
    signal.addEventListener("abort", () => this.#wakes.delete(wake));
    wake();
  }
}

/** A connection whose events a test controls. */
class FakeConnection implements Connection {
  #status: ConnectionStatus = { state: "live", since: 1, attempt: 0, role: "own" };
  readonly #listeners = new Set<() => void>();
  connects = 0;

  status(): ConnectionStatus {
    return this.#status;
  }
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
  become(status: Partial<ConnectionStatus>): void {
    this.#status = { ...this.#status, ...status };
    for (const listener of [...this.#listeners]) listener();
  }
  connect(): void {
    this.connects++;
    this.become({ state: "live" });
  }
  pause(): void {
    this.become({ state: "paused" });
  }
  channel(): Channel {
    throw new Error("The sources of these tests need no channel.");
  }
  close(): void {}
}

const http: Http = { request: () => Promise.reject(new Error("There is no network here.")) };

/** A browser with tabs, and a server that they share. */
export class Browser implements Disposable {
  readonly server = new FakeServer();
  /** The messages sent between tabs. */
  readonly messages: Record<string, unknown>[] = [];
  readonly #locks = new Locks();
  readonly scope = randomUUID();
  readonly #tabs: Tab[] = [];

  /** Opens a tab that follows the topic, and on request the conversation. */
  open({
    storage = memory(),
    locks = true,
    talks = false,
  }: {
    storage?: Storage;
    locks?: boolean;
    talks?: boolean;
  } = {}): Tab {
    const death = new AbortController();
    const broken: LocksLike = {
      request: () => Promise.reject(new Error("The page is not allowed to have locks.")),
    };
    const place = new TabEnvironment(
      locks ? this.#locks.of(death.signal) : broken,
      death.signal,
      this.messages,
    );
    const connection = new FakeConnection();
    const events: LogEvent[] = [];
    const log = (event: LogEvent) => events.push(event);
    const tabs = openTabs({ environment: place, connection, log });
    const plane = openSync({ environment: place, http, storage, log });
    const conversations = openConversations(tabs, http, place, { log, storage });
    plane.setScope(this.scope);
    conversations.setScope(this.scope);
    tabs.setScope(this.scope);
    tabs.share({
      topics: { plane, source: alive(this.server.topics, death.signal) },
      conversations: { plane: conversations, source: alive(this.server.conversations, death.signal) },
    });
    plane.subscribe("t", () => {});
    if (talks) conversations.get("c").subscribe(() => {});
    const tab = {
      place,
      connection,
      tabs,
      plane,
      events,
      conversation: conversations.get("c"),
      /** The documents it shows of the topic. */
      documents: () =>
        Object.fromEntries(plane.list("t").items.map(({ key, version }) => [key, Number(version)])),
      phase: () => plane.list("t").phase,
      text: () =>
        conversations
          .get("c")
          .state()
          .messages.flatMap(({ parts }) => parts ?? [])
          .map(({ text }) => text)
          .join(""),
      role: () => tabs.status().role,
      close() {
        tabs.close();
        plane.close();
        void conversations.close();
        death.abort();
      },
      /** The browser ends it: it sends nothing more, and its locks are free. */
      kill: () => death.abort(),
    };
    this.#tabs.push(tab);
    return tab;
  }

  [Symbol.dispose](): void {
    for (const tab of this.#tabs) tab.close();
  }
}

/** A tab of a test. */
export interface Tab {
  readonly place: TabEnvironment;
  readonly connection: FakeConnection;
  readonly tabs: ReturnType<typeof openTabs>;
  readonly plane: ReturnType<typeof openSync>;
  readonly events: LogEvent[];
  readonly conversation: ReturnType<ReturnType<typeof openConversations>["get"]>;
  documents(): Record<string, number>;
  phase(): string;
  text(): string;
  role(): string;
  close(): void;
  kill(): void;
}

/** A dead tab's socket is gone, too. */
function alive<S extends TopicSource | ConversationSource>(source: S, death: AbortSignal): S {
  const follow = (name: string, sink: never, signal: AbortSignal) =>
    source.follow(name, sink, AbortSignal.any([signal, death]));
  return { follow } as S;
}

/** The environment of a tab: real channels, and a clock that the test advances. It can be frozen, as browsers do. */
class TabEnvironment extends FakeEnvironment {
  readonly locks: LocksLike;
  readonly #name = randomUUID().slice(0, 8);
  readonly #death: AbortSignal;
  readonly #messages: Record<string, unknown>[];
  readonly #late: (() => void)[] = [];
  #frozen = false;

  constructor(locks: LocksLike, death: AbortSignal, messages: Record<string, unknown>[]) {
    super();
    this.locks = locks;
    this.#death = death;
    this.#messages = messages;
  }

  override newId(): string {
    return `${this.#name}-${super.newId()}`;
  }

  openBroadcast(name: string): BroadcastLike {
    const channel = new BroadcastChannel(name);
    const like: BroadcastLike = {
      onmessage: null,
      postMessage: (message) => {
        if (this.#death.aborted) return;
        this.#messages.push(message as Record<string, unknown>);
        channel.postMessage(message);
      },
      close: () => channel.close(),
    };
    const deliver = (data: unknown) => {
      if (!this.#death.aborted) like.onmessage?.({ data });
    };
    channel.onmessage = (event) => {
      const { data } = event as { data: unknown };
      if (this.#frozen) this.#late.push(() => deliver(data));
      else deliver(data);
    };
    this.#death.addEventListener("abort", () => channel.close());
    return like;
  }

  freeze(): void {
    this.#frozen = true;
  }

  /** Thawed, it gets the messages sent in the meantime, unless they were too many for the browser to keep. */
  thaw({ forgetful = false } = {}): void {
    this.#frozen = false;
    if (forgetful) this.#late.length = 0;
    for (const deliver of this.#late.splice(0)) deliver();
  }
}

/** Waits for what other tabs do. */
export function soon(check: () => void): Promise<void> {
  return vi.waitFor(check, { timeout: 30_000, interval: 5 });
}

/** Waits until a tab shows all there is, live. */
export function complete(tab: Tab, server: FakeServer): Promise<void> {
  return soon(() => {
    expect(tab.documents()).toEqual(server.all);
    expect(tab.phase()).toBe("live");
  });
}
