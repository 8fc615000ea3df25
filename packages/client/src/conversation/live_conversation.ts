import type { KhalaError } from "@khala/contracts";
import type {
  PresenceJson,
  PresentJson,
  RunJson,
  TranscriptMessageJson,
} from "@khala/contracts/conversation/v1";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import { withPatience } from "../storage/driver_support.ts";
import type { Notifier } from "../sync/notifier.ts";
import type { StoredConversation } from "./conversation_store.ts";
import { Outbox, type OutgoingMessage, type RegenerateOptions, type SendOptions } from "./outbox.ts";
import type { ConversationFrame, ConversationSink, ConversationSource, ConversationState } from "./source.ts";
import {
  EMPTY,
  fromStored,
  leavesGap,
  type RunOutcome,
  reduce,
  restoreState,
  type Transcript,
  withoutRun,
} from "./transcript.ts";

/** Whether the shown messages are up to date. */
export type ConversationHealth = "live" | "connecting" | "offline" | "error";

/** A conversation for rendering. It and its messages are the same objects until they change. */
export interface ConversationView {
  /** The messages, then those being sent, with the status `sending` or `queued`. */
  readonly messages: readonly TranscriptMessageJson[];
  /** The current run. */
  readonly run: RunJson | null;
  /** How the last run ended, if this client saw it; undefined during a run. */
  readonly outcome: RunOutcome | undefined;
  /** The engine's status text, while there is nothing else to show. */
  readonly activity: string | undefined;
  /** The devices that have the conversation open, with the client option `device`. */
  readonly present: readonly PresentJson[];
  readonly health: ConversationHealth;
  /** Why it is not live, if known. */
  readonly error: KhalaError | undefined;
  /** Whether a message is not acknowledged yet. */
  readonly sending: boolean;
  /** The messages come from the storage; newer ones are not known yet. */
  readonly fromDevice: boolean;
}

export interface LiveConversationOptions {
  readonly http: Http;
  readonly environment: Environment;
  readonly connection: Pick<Connection, "status" | "subscribe">;
  readonly notifier: Notifier;
  readonly source: () => ConversationSource | undefined;
  /** Whether conversations are stored: then it follows nothing before `attachStore`. */
  readonly stores: boolean;
  /** It is not in use any more. */
  readonly onIdle: (room: LiveConversation) => void;
}

/** One shared array, so that an empty list never counts as a change. */
const NOBODY: readonly PresentJson[] = [];

/** The view of a conversation that is not open. */
export const UNOPENED: ConversationView = {
  messages: EMPTY.messages,
  run: null,
  outcome: undefined,
  activity: undefined,
  present: NOBODY,
  health: "connecting",
  error: undefined,
  sending: false,
  fromDevice: false,
};

const GRACE_MS = 5_000;
const LOAD_PATIENCE_MS = 1_000;
/** Forbidden, or not found. */
const GONE = [403, 404];

/** An open conversation, in use by this tab or another one. */
export class LiveConversation implements ConversationSink {
  readonly convId: string;
  readonly #deps: LiveConversationOptions;
  #outbox: Outbox;
  readonly #listeners = new Set<() => void>();
  readonly #followers = new Set<Omit<ConversationSink, "position">>();
  #transcript = EMPTY;
  #view = UNOPENED;
  #live = false;
  #present = NOBODY;
  #error: KhalaError | undefined;
  #stored: StoredConversation | undefined;
  /** Whether the stored state is loaded. */
  #loaded: boolean;
  #fromDevice = false;
  #users = 0;
  #following: AbortController | undefined;
  #stopWatching: (() => void) | undefined;
  #cancelIdle: (() => void) | undefined;

  constructor(convId: string, deps: LiveConversationOptions) {
    this.convId = convId;
    this.#deps = deps;
    this.#loaded = !deps.stores;
    this.#outbox = this.#newOutbox();
  }

  get view(): ConversationView {
    return this.#view;
  }

  /** Shows the stored state, follows from there, and stores changes. */
  attachStore(stored: StoredConversation): void {
    this.#stored = stored;
    // `load` logs failures and does not reject. A storage that is late does not delay the server's messages.
    void withPatience(this.#deps.environment, LOAD_PATIENCE_MS, stored.load()).then((state) => {
      if (this.#stored !== stored) return;
      this.#loaded = true;
      if (state) this.#showStored(state);
      this.follow();
    });
  }

  /** This tab starts or stops writing to the storage. */
  setStoring(storing: boolean): void {
    if (storing) this.#write(false);
    else this.#stored?.flush();
  }

  subscribe(listener: () => void): () => void {
    // The same function may be subscribed twice, so each subscription gets its own.
    const own = () => listener();
    this.#listeners.add(own);
    const release = this.use();
    return () => {
      this.#listeners.delete(own);
      this.#deps.notifier.delete(own);
      release();
    };
  }

  /** Sends the current state and all changes to another tab. */
  relay(follower: Omit<ConversationSink, "position">, signal: AbortSignal): void {
    if (signal.aborted) return;
    const release = this.use();
    const { messages, run, cursor, seq } = this.#transcript;
    if (cursor !== "") follower.restore({ messages, run, cursor, seq });
    if (this.#present.length > 0) follower.frame(this.#presence());
    follower.health(this.#live, this.#error);
    this.#followers.add(follower);
    const leave = () => {
      this.#followers.delete(follower);
      release();
    };
    signal.addEventListener("abort", leave, { once: true });
  }

  async send(
    message: string | OutgoingMessage,
    options: SendOptions,
    edit?: string,
  ): Promise<{ run_id: string }> {
    const release = this.use();
    try {
      const { messages, cursor } = this.#transcript;
      const answer = await this.#outbox.send(message, options, cursor === "" ? undefined : messages, edit);
      // The message has created the conversation again.
      if (this.#refused) this.follow();
      return answer;
    } finally {
      release();
    }
  }

  async regenerate(messageId: string, options: RegenerateOptions): Promise<{ run_id: string }> {
    const release = this.use();
    try {
      return await this.#outbox.regenerate(messageId, options);
    } finally {
      release();
    }
  }

  /** The server reports no run. */
  nothingRuns(): void {
    this.#become(withoutRun(this.#transcript));
  }

  /** The conversation at this cursor was deleted. */
  forget(cursor: string): void {
    if (this.#transcript.cursor === cursor) this.#become(EMPTY);
  }

  position(): string | undefined {
    return this.#transcript.cursor || undefined;
  }

  restore(state: ConversationState): void {
    const before = this.#transcript;
    this.#become(restoreState(before, state));
    if (this.#transcript === before) return;
    for (const follower of [...this.#followers]) follower.restore(state);
  }

  frame(frame: ConversationFrame): void {
    if (frame.type === "presence") return this.#becomePresent((frame as PresenceJson).present ?? []);
    const before = this.#transcript;
    if (leavesGap(before, frame)) return this.follow();
    const next = reduce(before, frame);
    if (next === before) return;
    const replaced = before.memory.resyncing && !next.memory.resyncing;
    if (replaced || next.cursor === "") this.#outbox.forgetAccepted();
    this.#become(next);
    for (const follower of [...this.#followers]) follower.frame(frame);
    // The active branch is another one, and too long for an event.
    if (frame.type === "event" && next.cursor === "") this.follow();
  }

  health(live: boolean, error?: KhalaError): void {
    this.#live = live;
    this.#error = error;
    if (live) this.#fromDevice = false;
    else this.#present = NOBODY;
    if (!live && error && GONE.includes(error.meaning.status)) this.#removeStored();
    this.#changed();
    for (const follower of [...this.#followers]) follower.health(live, error);
  }

  /** Follows the current source from the current position. */
  follow(): void {
    this.#following?.abort();
    this.#following = undefined;
    this.health(false);
    const source = this.#deps.source();
    if (!source || this.#users === 0 || !this.#loaded) return;
    this.#following = new AbortController();
    source.follow(this.convId, this, this.#following.signal);
  }

  /** Discards everything, including unsent messages: the scope changed. */
  reset(): void {
    this.#stored?.flush();
    this.#stored = undefined;
    this.#loaded = !this.#deps.stores;
    this.#fromDevice = false;
    this.#outbox.close();
    this.#outbox = this.#newOutbox();
    this.#become(EMPTY);
    this.follow();
  }

  close(): void {
    this.#stored?.flush();
    this.#stored = undefined;
    this.#outbox.close();
    this.#following?.abort();
    this.#stopWatching?.();
    this.#cancelIdle?.();
  }

  /** Keeps the conversation open until the returned function is called, plus a grace period. */
  use(): () => void {
    this.#users++;
    this.#cancelIdle?.();
    this.#cancelIdle = undefined;
    this.#stopWatching ??= this.#deps.connection.subscribe(() => this.#changed());
    // A new user of it may succeed where the last attempt was refused.
    if (!this.#following || this.#refused) this.follow();
    let used = true;
    return () => {
      if (!used) return;
      used = false;
      if (--this.#users > 0) return;
      this.#cancelIdle = this.#deps.environment.timer(GRACE_MS, () => this.#deps.onIdle(this));
    };
  }

  #presence(): PresenceJson {
    return { type: "presence", present: [...this.#present] };
  }

  /** Presence is never stored, and no part of the transcript. */
  #becomePresent(present: readonly PresentJson[]): void {
    this.#present = present;
    this.#changed();
    for (const follower of [...this.#followers]) follower.frame(this.#presence());
  }

  #newOutbox(): Outbox {
    return new Outbox(this.convId, this.#deps.http, this.#deps.environment, () => this.#changed());
  }

  get #refused(): boolean {
    return this.#error !== undefined && !this.#live && !this.#error.meaning.retryable;
  }

  #showStored(state: ConversationState): void {
    this.#transcript = fromStored(state);
    this.#fromDevice = true;
    this.#changed();
    if (state.cursor !== "") for (const follower of [...this.#followers]) follower.restore(state);
  }

  /** The conversation does not exist or is forbidden: removes it from the storage. */
  #removeStored(): void {
    this.#stored?.remove();
    if (this.#fromDevice) this.#transcript = EMPTY;
    this.#fromDevice = false;
  }

  #become(transcript: Transcript): void {
    const before = this.#transcript;
    if (transcript === before) return;
    this.#transcript = transcript;
    if (transcript.messages.length === 0 && before.messages.length > 0) this.#stored?.remove();
    else this.#write(before.run !== null && transcript.run === null);
    this.#changed();
  }

  #write(atOnce: boolean): void {
    const { messages, run, cursor, seq } = this.#transcript;
    if (cursor !== "") this.#stored?.changed({ messages, run, cursor, seq }, atOnce);
  }

  #changed(): void {
    const { messages, run, outcome, activity } = this.#transcript;
    const next: ConversationView = {
      messages: sameItems(this.#view.messages, this.#outbox.shown(messages)),
      run,
      outcome,
      activity,
      present: this.#present,
      ...this.#healthView(),
      sending: this.#outbox.busy,
      fromDevice: this.#fromDevice,
    };
    const keys = Object.keys(next) as (keyof ConversationView)[];
    if (keys.every((key) => next[key] === this.#view[key])) return;
    this.#view = next;
    // Text streams faster than a screen renders.
    this.#deps.notifier.add(this.#listeners);
  }

  #healthView(): Pick<ConversationView, "health" | "error"> {
    if (this.#live) return { health: "live", error: this.#error };
    if (this.#refused) return { health: "error", error: this.#error };
    const { state, error } = this.#deps.connection.status();
    if (state === "unauthorised") return { health: "error", error };
    const away = state === "offline" || state === "paused" || state === "closed";
    return { health: away ? "offline" : "connecting", error: this.#error ?? error };
  }
}

function sameItems<T>(before: readonly T[], after: readonly T[]): readonly T[] {
  return before.length === after.length && before.every((item, i) => item === after[i]) ? before : after;
}
