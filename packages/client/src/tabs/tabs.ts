import { KhalaError } from "@khala/contracts";
import { type Connection, type ConnectionStatus, sameStatus } from "../connection/port.ts";
import type { Conversations } from "../conversation/conversations.ts";
import type { ConversationSource } from "../conversation/source.ts";
import type { Environment, LocksLike } from "../environment.ts";
import type { Log } from "../log.ts";
import type { SyncPlane } from "../sync/plane_port.ts";
import type { TopicSource } from "../sync/source.ts";
import { FollowerTab } from "./follower_tab.ts";
import { LeaderTab } from "./leader_tab.ts";
import { groupName, TabChannel } from "./messages.ts";

export interface TabsOptions {
  readonly environment: Environment;
  /** This tab's connection, used while it leads. */
  readonly connection: Connection;
  readonly log: Log;
}

/** A shared plane, which is a source itself, and its own source in the leader tab. */
interface SharedPlane<Plane extends Source, Source> {
  readonly plane: Plane;
  readonly source: Source;
}

/** The shared planes. */
export interface SharedPlanes {
  readonly topics: SharedPlane<Pick<SyncPlane, Shared>, TopicSource>;
  readonly conversations: SharedPlane<Pick<Conversations, Shared>, ConversationSource>;
}

type Shared = "follow" | "setSource" | "setStoring";

/** The tabs of one origin and person. The rest of the client sees one connection, whichever tab holds it. */
export interface Tabs extends Pick<Connection, "status" | "subscribe" | "connect" | "pause"> {
  /** Shares the planes. Nothing is followed before there is a scope. */
  share(planes: SharedPlanes): void;
  /** Only tabs of the same scope share a connection. */
  setScope(scope: string): void;
  close(): void;
}

/** Whether the platform lets tabs share a connection. */
export function canShareTabs({ locks, openBroadcast }: Environment): boolean {
  return locks !== undefined && openBroadcast !== undefined;
}

/** Joins the tabs of this origin: one of them leads, and holds the socket for all. */
export function openTabs(options: TabsOptions): Tabs {
  return new TabGroup(options);
}

/** The tab's current role; `alone` where locks are not available. */
type Role =
  | { readonly name: "none" }
  | { readonly name: "follower"; readonly side: FollowerTab }
  | { readonly name: "leader"; readonly side: LeaderTab }
  | { readonly name: "alone" };

class TabGroup implements Tabs {
  readonly #options: TabsOptions;
  readonly #listeners = new Set<() => void>();
  readonly #stopWatching: () => void;
  #planes: SharedPlanes | undefined;
  #scope: string | undefined;
  #role: Role = { name: "none" };
  #candidacy: AbortController | undefined;
  #channel: TabChannel | undefined;
  /** Paused or closed. */
  #away = false;
  #status: ConnectionStatus;

  constructor(options: TabsOptions) {
    this.#options = options;
    this.#status = options.connection.status();
    this.#stopWatching = options.connection.subscribe(() => this.#changed());
  }

  status(): ConnectionStatus {
    return this.#status;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  share(planes: SharedPlanes): void {
    this.#planes = planes;
    this.#setStoring(false);
    this.#join();
  }

  setScope(scope: string): void {
    if (scope === this.#scope) return;
    this.#leave();
    this.#scope = scope;
    this.#join();
  }

  connect(): void {
    this.#away = false;
    if (this.#role.name === "none") this.#join();
    else if (this.#role.name === "follower") this.#role.side.connect();
    else this.#options.connection.connect();
  }

  /** Only this tab pauses. The others elect another leader. */
  pause(): void {
    this.#away = true;
    this.#leave();
    this.#options.connection.pause();
  }

  close(): void {
    this.#away = true;
    this.#leave();
    this.#stopWatching();
    this.#listeners.clear();
  }

  #join(): void {
    const { environment, log } = this.#options;
    const { locks } = environment;
    if (!this.#planes || this.#scope === undefined || this.#away || this.#role.name !== "none") return;
    if (!locks)
      throw new KhalaError(
        "invalid_request",
        "This platform has no locks to elect a leader tab. Use shareTabs: false.",
      );
    const channel = new TabChannel(environment, this.#scope, (message) => {
      const role = this.#role;
      if (role.name === "leader" && "from" in message) role.side.receive(message);
      if (role.name === "follower" && "leader" in message) role.side.receive(message);
    });
    this.#channel = channel;
    const tab = environment.newId();
    const side = new FollowerTab({
      environment,
      channel,
      tab,
      log,
      onStatus: () => this.#changed(),
      onLeaderLost: () => this.#replaceLeader(channel),
    });
    this.#role = { name: "follower", side };
    this.#takeFrom(side.topics, side.conversations);
    this.#changed();
    this.#candidacy = this.#elect(locks, channel, false);
  }

  /** Asks for the lock, or takes it from a leader that does not answer. */
  #elect(locks: LocksLike, channel: TabChannel, steal: boolean): AbortController {
    return requestLeadership(locks, groupName(this.#scope ?? ""), steal, {
      elected: () => this.#lead(channel),
      failed: (error) => this.#goAlone(channel, error),
      replaced: () => this.#stepDown(channel),
    });
  }

  /** The leader hangs, is suspended, or is stopped in a debugger. */
  #replaceLeader(channel: TabChannel): void {
    const { environment, log } = this.#options;
    if (this.#channel !== channel || this.#role.name !== "follower" || !environment.locks) return;
    const message = "The tab that holds the connection does not answer. This tab takes over.";
    log({ level: "warn", event: "leader_replaced", message });
    this.#candidacy?.abort();
    this.#candidacy = this.#elect(environment.locks, channel, true);
  }

  /** Another tab took over while this one did not answer. */
  #stepDown(channel: TabChannel): void {
    if (this.#channel !== channel) return;
    this.#leave();
    this.#join();
  }

  #lead(channel: TabChannel): void {
    if (this.#channel !== channel || !this.#planes) return;
    const { environment, connection } = this.#options;
    this.#stopFollowing(false);
    const topics = this.#planes.topics.plane;
    const conversations = this.#planes.conversations.plane;
    const side = new LeaderTab({ environment, channel, connection, topics, conversations });
    this.#role = { name: "leader", side };
    this.#holdSocket();
  }

  /** Locks failed: this tab has its own socket. */
  #goAlone(channel: TabChannel, error: unknown): void {
    if (this.#channel !== channel) return;
    const message = "Tabs cannot share a connection on this platform. This tab opens its own.";
    this.#options.log({ level: "warn", event: "tabs_not_shared", message, error });
    this.#stopFollowing(false);
    this.#role = { name: "alone" };
    this.#holdSocket();
  }

  #holdSocket(): void {
    const { connection } = this.#options;
    this.#setStoring(true);
    if (connection.status().state === "paused") connection.connect();
    this.#takeFrom(this.#planes?.topics.source, this.#planes?.conversations.source);
    this.#changed();
  }

  #leave(): void {
    if (this.#role.name === "leader") this.#role.side.stop();
    // The socket belongs to one person and to the leader tab.
    if (this.#role.name === "leader" || this.#role.name === "alone") this.#options.connection.pause();
    this.#stopFollowing(true);
    this.#role = { name: "none" };
    this.#setStoring(false);
    this.#takeFrom(undefined, undefined);
    this.#channel?.close();
    this.#channel = undefined;
    this.#candidacy?.abort();
    this.#candidacy = undefined;
    this.#changed();
  }

  #stopFollowing(offline: boolean): void {
    if (this.#role.name === "follower") this.#role.side.stop(offline);
  }

  #setStoring(storing: boolean): void {
    this.#planes?.topics.plane.setStoring(storing);
    this.#planes?.conversations.plane.setStoring(storing);
  }

  #takeFrom(topics: TopicSource | undefined, conversations: ConversationSource | undefined): void {
    this.#planes?.topics.plane.setSource(topics);
    this.#planes?.conversations.plane.setSource(conversations);
  }

  /** Notifies of a changed status. */
  #changed(): void {
    const role = this.#role;
    const own = this.#options.connection.status();
    const status: ConnectionStatus =
      role.name === "follower" ? role.side.status : role.name === "leader" ? { ...own, role: "leader" } : own;
    const before = this.#status;
    if (sameStatus(before, status)) return;
    this.#status = status;
    for (const listener of [...this.#listeners]) listener();
  }
}

interface LeadershipHandlers {
  readonly elected: () => void;
  /** Locks are not available. */
  readonly failed: (error: unknown) => void;
  /** Another tab took the lock. */
  readonly replaced: () => void;
}

/**
 * Requests leadership of a group. The browser grants it to one tab at a time, in order, and takes it back from a tab that
 * closes or crashes. Stealing takes it from a tab that holds it. Aborting the answer lets another tab lead.
 */
function requestLeadership(
  locks: LocksLike,
  name: string,
  steal: boolean,
  { elected, failed, replaced }: LeadershipHandlers,
): AbortController {
  const candidacy = new AbortController();
  const { signal } = candidacy;
  let leads = false;
  const hold = () =>
    new Promise<void>((resolve) => {
      if (signal.aborted) return resolve();
      signal.addEventListener("abort", () => resolve(), { once: true });
      leads = true;
      elected();
    });
  locks.request(name, steal ? { steal } : { signal }, hold).catch((error: unknown) => {
    if (signal.aborted) return;
    if (leads) replaced();
    else failed(error);
  });
  return candidacy;
}
