import type { KhalaError } from "@khala/contracts";
import type { RunJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Connection } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import type { Notifier } from "../sync/notifier.ts";
import type { StoredConversation } from "./conversation_store.ts";
import { Outbox, type SendOptions } from "./outbox.ts";
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

/** Whether what is shown is kept up to date. */
export type ConversationHealth = "live" | "connecting" | "offline" | "error";

/** What a screen shows of a conversation. The same object until something changed, and so are its messages. */
export interface ConversationView {
  /** What was said, and at the end what is being sent, with the status `sending` or `queued`. */
  readonly messages: readonly TranscriptMessageJson[];
  /** The run under way. */
  readonly run: RunJson | null;
  /** How the last run ended, if this client saw it; undefined while one is under way. */
  readonly outcome: RunOutcome | undefined;
  /** What is going on, in the engine's words, while there is nothing else to show. */
  readonly activity: string | undefined;
  readonly health: ConversationHealth;
  /** Why it is not live, as far as that is known. */
  readonly error: KhalaError | undefined;
  /** Whether a message of this client waits for its answer. */
  readonly sending: boolean;
  /** The messages are those that this device kept: what was said since is not known yet. */
  readonly fromDevice: boolean;
}

export interface LiveConversationOptions {
  readonly http: Http;
  readonly environment: Environment;
  readonly connection: Pick<Connection, "status" | "subscribe">;
  readonly notifier: Notifier;
  readonly source: () => ConversationSource | undefined;
  /** Whether conversations are kept on this device: then it follows nothing before `keep`. */
  readonly keeps: boolean;
  /** Nobody uses it any more. */
  readonly onIdle: (room: LiveConversation) => void;
}

/** A conversation that nobody has opened yet. */
export const UNOPENED: ConversationView = {
  messages: EMPTY.messages,
  run: null,
  outcome: undefined,
  activity: undefined,
  health: "connecting",
  error: undefined,
  sending: false,
  fromDevice: false,
};

const GRACE_MS = 5_000;
/** Forbidden, or not found. */
const GONE = [403, 404];

/** One conversation, while somebody in this tab or another one looks at it. */
export class LiveConversation implements ConversationSink {
  readonly convId: string;
  readonly #deps: LiveConversationOptions;
  #outbox: Outbox;
  readonly #listeners = new Set<() => void>();
  readonly #followers = new Set<Omit<ConversationSink, "position">>();
  #transcript = EMPTY;
  #view = UNOPENED;
  #live = false;
  #error: KhalaError | undefined;
  #kept: StoredConversation | undefined;
  /** Whether it is known what this device kept. */
  #recalled: boolean;
  #fromDevice = false;
  #users = 0;
  #following: AbortController | undefined;
  #stopWatching: (() => void) | undefined;
  #cancelIdle: (() => void) | undefined;

  constructor(convId: string, deps: LiveConversationOptions) {
    this.convId = convId;
    this.#deps = deps;
    this.#recalled = !deps.keeps;
    this.#outbox = this.#newOutbox();
  }

  get view(): ConversationView {
    return this.#view;
  }

  /** Shows what was kept there, follows from that, and keeps what comes. */
  keep(kept: StoredConversation): void {
    this.#kept = kept;
    // A failure is no reason not to follow, and is told where it happens.
    void kept.load().then((state) => {
      if (this.#kept !== kept) return;
      this.#recalled = true;
      if (state) this.#recall(state);
      this.follow();
    });
  }

  /** From now on this tab writes, or has written, what is kept. */
  setStoring(storing: boolean): void {
    if (storing) this.#write(false);
    else this.#kept?.flush();
  }

  subscribe(listener: () => void): () => void {
    // A listener that is added twice is two.
    const own = () => listener();
    this.#listeners.add(own);
    const release = this.use();
    return () => {
      this.#listeners.delete(own);
      this.#deps.notifier.delete(own);
      release();
    };
  }

  /** Passes on what this room has, and then what comes. */
  relay(follower: Omit<ConversationSink, "position">, signal: AbortSignal): void {
    if (signal.aborted) return;
    const release = this.use();
    const { messages, run, cursor, seq } = this.#transcript;
    if (cursor !== "") follower.restore({ messages, run, cursor, seq });
    follower.health(this.#live, this.#error);
    this.#followers.add(follower);
    const leave = () => {
      this.#followers.delete(follower);
      release();
    };
    signal.addEventListener("abort", leave, { once: true });
  }

  async send(text: string, options: SendOptions): Promise<{ run_id: string }> {
    const release = this.use();
    try {
      const { messages, cursor } = this.#transcript;
      const answer = await this.#outbox.send(text, options, cursor === "" ? undefined : messages);
      // Where a deleted conversation was, there is a new one now.
      if (this.#refused) this.follow();
      return answer;
    } finally {
      release();
    }
  }

  /** The server says that nothing runs. */
  nothingRuns(): void {
    this.#become(withoutRun(this.#transcript));
  }

  /** The conversation that was at this cursor does not exist any more. */
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
    const before = this.#transcript;
    if (leavesGap(before, frame)) return this.follow();
    const next = reduce(before, frame);
    if (next === before) return;
    const replaced = before.memory.resyncing && !next.memory.resyncing;
    if (replaced || next.cursor === "") this.#outbox.forgetAccepted();
    this.#become(next);
    for (const follower of [...this.#followers]) follower.frame(frame);
  }

  health(live: boolean, error?: KhalaError): void {
    this.#live = live;
    this.#error = error;
    if (live) this.#fromDevice = false;
    if (!live && error && GONE.includes(error.meaning.status)) this.#lose();
    this.#changed();
    for (const follower of [...this.#followers]) follower.health(live, error);
  }

  /** Follows, from where it is, what the source has now. */
  follow(): void {
    this.#following?.abort();
    this.#following = undefined;
    this.health(false);
    const source = this.#deps.source();
    if (!source || this.#users === 0 || !this.#recalled) return;
    this.#following = new AbortController();
    source.follow(this.convId, this, this.#following.signal);
  }

  /** Forgets everything, what is on its way too, and begins anew: it is somebody else's now. */
  reset(): void {
    this.#kept?.flush();
    this.#kept = undefined;
    this.#recalled = !this.#deps.keeps;
    this.#fromDevice = false;
    this.#outbox.close();
    this.#outbox = this.#newOutbox();
    this.#become(EMPTY);
    this.follow();
  }

  close(): void {
    this.#kept?.flush();
    this.#kept = undefined;
    this.#outbox.close();
    this.#following?.abort();
    this.#stopWatching?.();
    this.#cancelIdle?.();
  }

  /** Keeps it open until what this returns is called, and a little longer. */
  use(): () => void {
    this.#users++;
    this.#cancelIdle?.();
    this.#cancelIdle = undefined;
    this.#stopWatching ??= this.#deps.connection.subscribe(() => this.#changed());
    // Somebody who comes anew may be allowed what was refused before.
    if (!this.#following || this.#refused) this.follow();
    let used = true;
    return () => {
      if (!used) return;
      used = false;
      if (--this.#users > 0) return;
      this.#cancelIdle = this.#deps.environment.timer(GRACE_MS, () => this.#deps.onIdle(this));
    };
  }

  #newOutbox(): Outbox {
    return new Outbox(this.convId, this.#deps.http, this.#deps.environment, () => this.#changed());
  }

  get #refused(): boolean {
    return this.#error !== undefined && !this.#live && !this.#error.meaning.retryable;
  }

  #recall(state: ConversationState): void {
    this.#transcript = fromStored(state);
    this.#fromDevice = true;
    this.#changed();
    if (state.cursor !== "") for (const follower of [...this.#followers]) follower.restore(state);
  }

  /** It is not there, or not for this person: nothing of it stays on the device. */
  #lose(): void {
    this.#kept?.remove();
    if (this.#fromDevice) this.#transcript = EMPTY;
    this.#fromDevice = false;
  }

  #become(transcript: Transcript): void {
    const before = this.#transcript;
    if (transcript === before) return;
    this.#transcript = transcript;
    if (transcript.messages.length === 0 && before.messages.length > 0) this.#kept?.remove();
    else this.#write(before.run !== null && transcript.run === null);
    this.#changed();
  }

  #write(atOnce: boolean): void {
    const { messages, run, cursor, seq } = this.#transcript;
    if (cursor !== "") this.#kept?.changed({ messages, run, cursor, seq }, atOnce);
  }

  #changed(): void {
    const { messages, run, outcome, activity } = this.#transcript;
    const next: ConversationView = {
      messages: sameItems(this.#view.messages, this.#outbox.shown(messages)),
      run,
      outcome,
      activity,
      ...this.#condition(),
      sending: this.#outbox.busy,
      fromDevice: this.#fromDevice,
    };
    const keys = Object.keys(next) as (keyof ConversationView)[];
    if (keys.every((key) => next[key] === this.#view[key])) return;
    this.#view = next;
    // Words come faster than a screen shows them.
    this.#deps.notifier.add(this.#listeners);
  }

  #condition(): Pick<ConversationView, "health" | "error"> {
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
