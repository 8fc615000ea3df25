import type { ConnectionStatus } from "../connection/port.ts";
import type { ConversationSource } from "../conversation/source.ts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import type { Cursor } from "../storage/storage.ts";
import type { TopicSource } from "../sync/source.ts";
import {
  errorOf,
  type FollowerMessage,
  type FromLeader,
  keyOf,
  type StatusWire,
  type Subject,
  type TabChannel,
  type ToLeader,
} from "./messages.ts";
import {
  type FollowRequest,
  leaderSilent,
  type Relayed,
  RelayedConversation,
  RelayedTopic,
} from "./relayed.ts";

export interface FollowerOptions {
  readonly environment: Environment;
  readonly channel: TabChannel;
  readonly tab: string;
  readonly log: Log;
  /** The connection's status changed. */
  readonly onStatus: () => void;
  /** The leader does not answer: this tab should lead. */
  readonly onLeaderLost: () => void;
}

/** A leader that leaves this many pings unanswered counts as silent, and is replaced. */
const PING_MS = 750;
const UNANSWERED = 3;
/** Tabs that miss the leader at the same time do not all take its place: the first one's announcement stops the others. */
const TAKEOVER_MS = 750;

/** A follower tab: sources that the leader tab feeds, and the leader's connection status. */
export class FollowerTab {
  readonly #options: FollowerOptions;
  readonly #followed = new Map<string, Set<Relayed>>();
  /** Former leaders, whose messages may arrive late. */
  readonly #retired = new Set<string>();
  #leader: string | undefined;
  #silent = false;
  #unanswered = 0;
  #asked = 0;
  #stopped = false;
  #status: ConnectionStatus;
  #lastStatus = "";
  #cancelPing: () => void = () => {};
  #cancelTakeover: () => void = () => {};
  readonly #stopWatching: (() => void) | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
    const { environment } = options;
    this.#status = { state: "connecting", since: environment.now(), attempt: 0, role: "follower" };
    this.#stopWatching = environment.visible?.subscribe(() => this.#becameVisible());
    this.#ping();
  }

  /** The last known connection status of the leader tab. */
  get status(): ConnectionStatus {
    return this.#status;
  }

  readonly topics: TopicSource = {
    follow: (name, sink, signal) => {
      const subject = { plane: "sync", name } as const;
      const ask = (position: Cursor | undefined) => this.#ask(subject, position);
      const followed: Relayed = new RelayedTopic(name, sink, signal, ask);
      this.#add(subject, followed, signal);
    },
  };

  readonly conversations: ConversationSource = {
    follow: (name, sink, signal) => {
      const subject = { plane: "conversation", name } as const;
      const followed: Relayed = new RelayedConversation(sink, (position) => this.#ask(subject, position));
      this.#add(subject, followed, signal);
    },
  };

  receive(message: FromLeader): void {
    if (this.#retired.has(message.leader)) return;
    const changed = this.#leader !== message.leader;
    const heardAgain = this.#silent;
    this.#unanswered = 0;
    this.#silent = false;
    this.#cancelTakeover();
    if (changed) {
      if (this.#leader) this.#retired.add(this.#leader);
      this.#leader = message.leader;
    }
    if (changed || heardAgain) {
      // The leader's status must be applied again, even if it is the same as before.
      this.#lastStatus = "";
      this.#askAll();
    }
    if (message.type === "leading") {
      this.#applyStatus(message.status);
    } else if (message.type === "dropped") {
      if (message.to === this.#options.tab) this.#askAll();
    } else if (!("to" in message) || message.to === this.#options.tab) {
      const plane = "plane" in message ? message.plane : PLANES[message.type];
      for (const followed of [...(this.#followed.get(keyOf({ plane, name: message.name })) ?? [])])
        followed.receive(message);
    }
  }

  /** Asks the leader tab to connect now. */
  connect(): void {
    this.#post({ type: "connect" });
  }

  /** Stops following. With `offline`, topics are reported as offline. */
  stop(offline: boolean): void {
    this.#stopped = true;
    this.#cancelPing();
    this.#cancelTakeover();
    this.#stopWatching?.();
    this.#post({ type: "bye" });
    if (offline) for (const followed of this.#all()) followed.stopped();
    this.#followed.clear();
  }

  #add(subject: Subject, followed: Relayed, signal: AbortSignal): void {
    if (signal.aborted || this.#stopped) return;
    const key = keyOf(subject);
    const there = this.#followed.get(key) ?? new Set();
    this.#followed.set(key, there.add(followed));
    const leave = () => {
      // Another subscription may have started in the meantime.
      there.delete(followed);
      if (there.size > 0 || this.#followed.get(key) !== there) return;
      this.#followed.delete(key);
      this.#post({ type: "unfollow", ...subject });
    };
    signal.addEventListener("abort", leave, { once: true });
    if (this.#silent) followed.lost();
    else if (this.#leader) followed.ask();
  }

  #ask(subject: Subject, position: Extract<ToLeader, { type: "follow" }>["position"]): FollowRequest {
    const ask = ++this.#asked;
    this.#post({ type: "follow", ask, ...(position !== undefined && { position }), ...subject });
    return {
      number: ask,
      next: () => this.#post({ type: "next", ask, ...subject }),
      failed: (topic, error) =>
        this.#options.log({
          level: "error",
          event: "tab_failed",
          message: "A change could not be applied.",
          topic,
          error,
        }),
    };
  }

  #askAll(): void {
    for (const followed of this.#all()) followed.ask();
  }

  /** Counts pings instead of time, because timers of hidden tabs are late. */
  #ping(): void {
    if (this.#stopped) return;
    if (this.#unanswered++ >= UNANSWERED && !this.#silent) this.#leaderLost();
    this.#post({ type: "ping", ...(this.#leader && { knows: this.#leader }) });
    this.#cancelPing = this.#options.environment.timer(PING_MS, () => this.#ping());
  }

  #leaderLost(): void {
    this.#silent = true;
    // A tab that was replaced may have spoken last, and hidden the one that leads.
    this.#retired.clear();
    const { environment, onLeaderLost } = this.#options;
    this.#cancelTakeover = environment.timer(environment.random() * TAKEOVER_MS, onLeaderLost);
    const since = environment.now();
    this.#become({ state: "stale", since, attempt: 0, error: leaderSilent(), role: "follower" });
    for (const followed of this.#all()) followed.lost();
  }

  /** The leader repeats its status at every ping; an unchanged one is ignored. */
  #applyStatus(wire: StatusWire): void {
    const text = JSON.stringify(wire);
    if (text === this.#lastStatus) return;
    this.#lastStatus = text;
    const { error, ...status } = wire;
    const known = errorOf(error);
    this.#become({ ...status, ...(known && { error: known }), role: "follower" });
  }

  /** This tab became visible: the leader, which may be hidden, should connect without backoff. */
  #becameVisible(): void {
    const { visible } = this.#options.environment;
    if (visible?.get() && this.#status.state === "connecting") this.connect();
  }

  #become(status: ConnectionStatus): void {
    this.#status = status;
    this.#options.onStatus();
  }

  *#all(): Iterable<Relayed> {
    for (const some of [...this.#followed.values()]) yield* [...some];
  }

  #post(message: FollowerMessage): void {
    this.#options.channel.post({ ...message, from: this.#options.tab });
  }
}

const PLANES = { batch: "sync", phase: "sync", frame: "conversation", health: "conversation" } as const;
