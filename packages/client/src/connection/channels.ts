import { KhalaError, type phoenix, SYNC_CHANNEL } from "@khala/contracts";
import type { Environment } from "../environment.ts";
import { type Backoff, backoffMs } from "./backoff.ts";
import { errorOf, type PhoenixSocket } from "./phoenix_socket.ts";
import type { Channel, ChannelHandlers } from "./port.ts";

/** The backoff of joins that failed with a retryable error. */
const REJOIN: Backoff = { baseMs: 500, capMs: 30_000 };

interface Member {
  readonly topic: string;
  readonly handlers: ChannelHandlers;
  /** The ref of the pending or current join. */
  joinRef: string | undefined;
  joined: boolean;
  /** Refused for good. */
  ended: boolean;
  failures: number;
  /** The error frame that came just before the channel closed. */
  lastError: KhalaError | undefined;
  cancelRejoin: () => void;
  /** A token that waits for the answer to the join. */
  onJoinAnswered: (() => void) | undefined;
}

/** The channels, and their joins on the current socket. */
export class Channels {
  readonly #environment: Environment;
  readonly #members = new Map<string, Member>();
  #socket: PhoenixSocket | undefined;

  constructor(environment: Environment) {
    this.#environment = environment;
  }

  get size(): number {
    return this.#members.size;
  }

  /** Adds a channel until it leaves. */
  add(topic: string, handlers: ChannelHandlers): Channel {
    if (this.#members.has(topic))
      throw new KhalaError("invalid_request", `The channel "${topic}" is already joined. Leave it first.`);
    const member: Member = {
      topic,
      handlers,
      joinRef: undefined,
      joined: false,
      ended: false,
      failures: 0,
      lastError: undefined,
      cancelRejoin: () => {},
      onJoinAnswered: undefined,
    };
    this.#members.set(topic, member);
    this.#join(member);
    return {
      push: (event, payload, onReply) => this.#push(member, event, payload, onReply),
      leave: () => this.#leave(member),
    };
  }

  /** Joins everything on a socket that has just opened. */
  attach(socket: PhoenixSocket): void {
    this.#socket = socket;
    for (const member of [...this.#members.values()]) this.#join(member);
  }

  /** The socket closed. */
  detach(error: KhalaError | undefined): void {
    this.#socket = undefined;
    for (const member of [...this.#members.values()]) {
      member.cancelRejoin();
      const wasJoining = member.joinRef !== undefined;
      member.onJoinAnswered = undefined;
      member.joinRef = undefined;
      member.joined = false;
      member.failures = 0;
      if (wasJoining && !member.ended) member.handlers.onLeft(error);
    }
  }

  receive({ topic, joinRef, event, payload }: phoenix.Message): void {
    const member = this.#members.get(topic);
    // Messages with another join's ref belong to that join; broadcasts have none.
    if (!member?.joined || (joinRef !== null && joinRef !== member.joinRef)) return;
    if (event === "phx_close" || event === "phx_error") return this.#ended(member, event === "phx_error");
    if (event === "frame") member.lastError = errorOfChannel(payload);
    member.handlers.onEvent(event, payload);
  }

  /** Replaces the token of the open socket. */
  authenticate(token: string, settle: (error: KhalaError | undefined) => void): void {
    const socket = this.#socket;
    if (!socket) return;
    const push = (joinRef: string, done: () => void) =>
      socket.push(SYNC_CHANNEL, joinRef, "auth", { token }, (error) => {
        done();
        settle(error);
      });
    const sync = this.#members.get(SYNC_CHANNEL);
    if (sync?.joined && sync.joinRef) return push(sync.joinRef, () => {});
    if (sync?.joinRef !== undefined) {
      // A second join would end the first.
      sync.onJoinAnswered = () => this.authenticate(token, settle);
      return;
    }
    // The channel that takes tokens is not joined: join it for this request.
    const joinRef = socket.newRef();
    const leave = () => socket.cast(SYNC_CHANNEL, joinRef, "phx_leave", {});
    socket.push(
      SYNC_CHANNEL,
      joinRef,
      "phx_join",
      {},
      (error) => (error ? settle(error) : push(joinRef, leave)),
      joinRef,
    );
  }

  #join(member: Member): void {
    const socket = this.#socket;
    if (!socket || member.ended) return;
    const joinRef = socket.newRef();
    Object.assign(member, { joinRef, joined: false, lastError: undefined });
    socket.push(
      member.topic,
      joinRef,
      "phx_join",
      member.handlers.params(),
      (error, reply) => {
        if (this.#members.get(member.topic) !== member || member.joinRef !== joinRef) return;
        const { onJoinAnswered } = member;
        member.onJoinAnswered = undefined;
        if (error) this.#refused(member, error);
        else {
          member.joined = true;
          member.failures = 0;
          member.handlers.onJoined(reply);
        }
        onJoinAnswered?.();
      },
      joinRef,
    );
  }

  #refused(member: Member, error: KhalaError): void {
    member.joinRef = undefined;
    member.joined = false;
    member.ended = !error.meaning.retryable;
    if (!member.ended) this.#rejoinLater(member, error);
    member.handlers.onLeft(error);
  }

  #ended(member: Member, comesBack: boolean): void {
    const error = member.lastError;
    member.joinRef = undefined;
    member.joined = false;
    // Closed without a reason: replaced by another join of this client, or the server is stopping.
    member.ended = !comesBack && error !== undefined && !error.meaning.retryable;
    if (!member.ended) this.#rejoinLater(member, error);
    member.handlers.onLeft(error);
  }

  #rejoinLater(member: Member, error: KhalaError | undefined): void {
    const { random } = this.#environment;
    const wait = backoffMs(++member.failures, random, REJOIN, error?.details.retry_after_ms);
    member.cancelRejoin = this.#environment.timer(wait, () => this.#join(member));
  }

  #push(
    member: Member,
    event: string,
    payload: unknown,
    onReply?: (reply: unknown) => void,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (!this.#socket || !member.joined || member.joinRef === undefined)
        return reject(
          new KhalaError("unavailable", `The channel "${member.topic}" is not joined at the moment.`),
        );
      this.#socket.push(member.topic, member.joinRef, event, payload, (error, reply) => {
        if (error) return reject(error);
        onReply?.(reply);
        resolve(reply);
      });
    });
  }

  #leave(member: Member): void {
    if (this.#members.get(member.topic) !== member) return;
    this.#members.delete(member.topic);
    member.cancelRejoin();
    if (member.joinRef !== undefined) this.#socket?.cast(member.topic, member.joinRef, "phx_leave", {});
    member.onJoinAnswered?.();
  }
}

/** An error of the channel; stale_cursor concerns a topic. */
function errorOfChannel(payload: unknown): KhalaError | undefined {
  const known = errorOfFrame(payload);
  return known?.code === "stale_cursor" ? undefined : known;
}

/** The error that a frame carries: `{"error":{…}}` of sync, `{"type":"error",…}` of conversations. */
export function errorOfFrame(payload: unknown): KhalaError | undefined {
  const { error, type, code, message, retry_after_ms } = (payload ?? {}) as Record<string, unknown>;
  if (error) return errorOf({ error });
  return type === "error" ? errorOf({ error: { code, message, retry_after_ms } }) : undefined;
}
