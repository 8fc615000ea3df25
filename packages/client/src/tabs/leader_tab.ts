import type { Connection } from "../connection/port.ts";
import type { ConversationSource } from "../conversation/source.ts";
import type { Environment } from "../environment.ts";
import type { TopicSource } from "../sync/source.ts";
import {
  errorWire,
  keyOf,
  type LeaderMessage,
  type Part,
  type Subject,
  type TabChannel,
  type ToLeader,
} from "./messages.ts";
import { conversationRelay, type Relay, topicRelay } from "./relays.ts";

export interface LeaderOptions {
  readonly environment: Environment;
  readonly channel: TabChannel;
  readonly connection: Pick<Connection, "status" | "subscribe" | "connect">;
  readonly topics: TopicSource;
  readonly conversations: ConversationSource;
}

/** A topic or conversation that other tabs follow through this one. */
interface Shared {
  readonly relay: Relay;
  readonly end: AbortController;
  /** The last follow request of each tab. */
  readonly tabs: Map<string, Asked>;
}

interface Asked {
  readonly ask: number;
  readonly end: AbortController;
  /** Parts that the tab has not requested yet. */
  rest: Iterator<Part, void> | undefined;
}

/** Interval of the check for dead tabs. Timers of hidden tabs may fire only once a minute. */
const TAB_CHECK_MS = 60_000;
const MAX_MISSED_CHECKS = 4;

/** The leader tab: follows what other tabs want, sends them the current state, and relays changes. */
export class LeaderTab {
  readonly #options: LeaderOptions;
  /** New for each term: a tab that leads again is another leader. */
  readonly #id: string;
  readonly #shared = new Map<string, Shared>();
  /** Known tabs, and the number of checks since their last message. */
  readonly #tabs = new Map<string, number>();
  readonly #stopWatching: () => void;
  #cancelCheck: () => void = () => {};

  constructor(options: LeaderOptions) {
    this.#options = options;
    this.#id = options.environment.newId();
    this.#stopWatching = options.connection.subscribe(() => this.#announce());
    this.#announce();
    this.#checkTabs();
  }

  receive(message: ToLeader): void {
    const { from } = message;
    if (message.type === "bye") return this.#drop(from);
    const forgotten = !this.#tabs.has(from);
    this.#tabs.set(from, 0);
    switch (message.type) {
      case "ping":
        if (forgotten && message.knows === this.#id) this.#post({ type: "dropped", to: from });
        return this.#announce();
      case "connect":
        return this.#options.connection.connect();
      case "follow":
        return this.#answer(message);
      case "next": {
        const asked = this.#shared.get(keyOf(message))?.tabs.get(from);
        if (asked?.ask === message.ask) this.#next(message, from, asked);
        return;
      }
      case "unfollow":
        return this.#unfollow(from, keyOf(message));
    }
  }

  stop(): void {
    this.#stopWatching();
    this.#cancelCheck();
    for (const shared of this.#shared.values()) end(shared);
    this.#shared.clear();
  }

  /** Announces the leader and the connection status. */
  #announce(): void {
    const { role: _, error, ...status } = this.#options.connection.status();
    this.#post({ type: "leading", status: { ...status, ...errorWire(error) } });
  }

  #answer({ from, plane, name, ask, position }: Extract<ToLeader, { type: "follow" }>): void {
    const subject = { plane, name };
    const shared = this.#share(subject);
    shared.tabs.get(from)?.end.abort();
    const asked: Asked = { ask, end: new AbortController(), rest: undefined };
    shared.tabs.set(from, asked);
    const status = shared.relay.status();
    if (status) this.#post(status);
    shared.relay.readState(position, asked.end.signal, (parts) => {
      asked.rest = parts;
      if (parts) this.#next(subject, from, asked);
      else this.#post({ type: "current", to: from, ask, ...subject });
    });
  }

  #next({ plane, name }: Subject, to: string, asked: Asked): void {
    const next = asked.rest?.next();
    if (!next || next.done) return;
    if (next.value.end) asked.rest = undefined;
    this.#post({ type: "part", to, ask: asked.ask, part: next.value, plane, name });
  }

  #share({ plane, name }: Subject): Shared {
    const key = keyOf({ plane, name });
    const there = this.#shared.get(key);
    if (there) return there;
    const { topics, conversations } = this.#options;
    const ending = new AbortController();
    const post = (message: LeaderMessage) => this.#post(message);
    const relay =
      plane === "sync"
        ? topicRelay(topics, name, post, ending.signal)
        : conversationRelay(conversations, name, post, ending.signal);
    const shared: Shared = { relay, end: ending, tabs: new Map() };
    this.#shared.set(key, shared);
    return shared;
  }

  #unfollow(tab: string, key: string): void {
    const shared = this.#shared.get(key);
    shared?.tabs.get(tab)?.end.abort();
    shared?.tabs.delete(tab);
    if (!shared || shared.tabs.size > 0) return;
    end(shared);
    this.#shared.delete(key);
  }

  #drop(tab: string): void {
    this.#tabs.delete(tab);
    for (const key of [...this.#shared.keys()]) this.#unfollow(tab, key);
  }

  #checkTabs(): void {
    this.#cancelCheck = this.#options.environment.timer(TAB_CHECK_MS, () => {
      for (const [tab, missed] of [...this.#tabs]) {
        if (missed >= MAX_MISSED_CHECKS) this.#drop(tab);
        else this.#tabs.set(tab, missed + 1);
      }
      this.#checkTabs();
    });
  }

  #post(message: LeaderMessage): void {
    this.#options.channel.post({ ...message, leader: this.#id });
  }
}

function end(shared: Shared): void {
  shared.end.abort();
  for (const asked of shared.tabs.values()) asked.end.abort();
}
