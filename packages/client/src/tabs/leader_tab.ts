import type { Connection } from "../connection/port.ts";
import type { ConversationSource } from "../conversation/source.ts";
import type { Environment } from "../environment.ts";
import type { TopicSource } from "../sync/source.ts";
import {
  errorWire,
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
  readonly topics: SharedTopics;
  readonly conversations?: SharedConversations;
}

/** Something that tabs follow through this one. */
interface Shared {
  readonly relay: Relay;
  readonly end: AbortController;
  /** The last question of each tab that follows. */
  readonly tabs: Map<string, Asked>;
}

interface Asked {
  readonly ask: number;
  readonly end: AbortController;
  /** What that tab has not asked for yet. */
  rest: Iterator<Part, void> | undefined;
}

/** How often it is looked whether tabs are still there. Timers of hidden tabs may fire only once a minute. */
const ROLL_CALL_MS = 60_000;
const MISSED_CALLS = 4;

/** Leads: follows through the planes of this tab what others want, tells them what this tab has, and passes on what comes. */
export class LeaderTab {
  readonly #options: LeaderOptions;
  /** Of this time of leading: a tab that leads again is another leader. */
  readonly #id: string;
  readonly #shared = new Map<string, Shared>();
  /** The tabs that were heard of, and the roll calls since. */
  readonly #tabs = new Map<string, number>();
  readonly #stopWatching: () => void;
  #cancelRollCall: () => void = () => {};

  constructor(options: LeaderOptions) {
    this.#options = options;
    this.#id = options.environment.newId();
    this.#stopWatching = options.connection.subscribe(() => this.#lead());
    this.#lead();
    this.#rollCall();
  }

  receive(message: ToLeader): void {
    const { from } = message;
    if (message.type === "bye") return this.#drop(from);
    const forgotten = !this.#tabs.has(from);
    this.#tabs.set(from, 0);
    switch (message.type) {
      case "ping":
        if (forgotten && message.knows === this.#id) this.#post({ type: "dropped", to: from });
        return this.#lead();
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
    this.#cancelRollCall();
    for (const shared of this.#shared.values()) end(shared);
    this.#shared.clear();
  }

  /** Says who leads, and how the connection stands. */
  #lead(): void {
    const { role: _, error, ...status } = this.#options.connection.status();
    this.#post({ type: "leading", status: { ...status, ...errorWire(error) } });
  }

  #answer({ from, plane, name, ask, position }: Extract<ToLeader, { type: "follow" }>): void {
    const subject = { plane, name };
    const shared = this.#share(subject);
    if (!shared) return;
    shared.tabs.get(from)?.end.abort();
    const asked: Asked = { ask, end: new AbortController(), rest: undefined };
    shared.tabs.set(from, asked);
    const standing = shared.relay.standing();
    if (standing) this.#post(standing);
    shared.relay.look(position, asked.end.signal, (parts) => {
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

  #share({ plane, name }: Subject): Shared | undefined {
    const key = keyOf({ plane, name });
    const there = this.#shared.get(key);
    if (there) return there;
    const { topics, conversations } = this.#options;
    const ending = new AbortController();
    const post = (message: LeaderMessage) => this.#post(message);
    const relay =
      plane === "sync"
        ? topicRelay(topics, name, post, ending.signal)
        : conversations && conversationRelay(conversations, name, post, ending.signal);
    if (!relay) return undefined;
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

  #rollCall(): void {
    this.#cancelRollCall = this.#options.environment.timer(ROLL_CALL_MS, () => {
      for (const [tab, missed] of [...this.#tabs]) {
        if (missed >= MISSED_CALLS) this.#drop(tab);
        else this.#tabs.set(tab, missed + 1);
      }
      this.#rollCall();
    });
  }

  #post(message: LeaderMessage): void {
    this.#options.channel.post({ ...message, leader: this.#id });
  }
}

const keyOf = ({ plane, name }: Subject) => `${plane}:${name}`;

function end(shared: Shared): void {
  shared.end.abort();
  for (const asked of shared.tabs.values()) asked.end.abort();
}

/**
 * What tabs need of the sync plane: a source that can be changed, and that it is a source itself. Whoever follows it without a
 * position gets all it has by `replace`, then each change after it was applied.
 */
export interface SharedTopics extends TopicSource {
  /** Undefined: changes come from nowhere until there is a source. Topics go on from their own positions. */
  setSource(source: TopicSource | undefined): void;
  /** Whether this tab writes to the storage. */
  setStoring(storing: boolean): void;
}

/** The same of the conversations: a follower without a position gets `restore`, then each frame. */
export interface SharedConversations extends ConversationSource {
  setSource(source: ConversationSource | undefined): void;
  setStoring(storing: boolean): void;
}
