import { KhalaError } from "@khala/contracts";
import type { ConversationFrame, ConversationSink, ConversationState } from "../conversation/source.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { reaches } from "../sync/cursor.ts";
import type { TopicPhase, TopicSink } from "../sync/source.ts";
import { type Batch, errorOf, type FromLeader } from "./messages.ts";

/** A follow request to the leader tab. */
export interface FollowRequest {
  readonly number: number;
  /** Requests the next part of the state. */
  next(): void;
  failed(name: string, error: unknown): void;
}

/** A topic or conversation that the leader tab relays to this one. */
export interface Relayed {
  /** There is a leader, perhaps a new one: requests the missing changes. */
  ask(): void;
  /** The leader does not answer. */
  lost(): void;
  /** This tab stopped following. */
  stopped(): void;
  receive(message: FromLeader): void;
}

/** The error of topics while the leader tab does not answer. */
export function leaderSilent(): KhalaError {
  return new KhalaError(
    "unavailable",
    "The tab that holds the connection does not answer. Switch to it, or close it.",
  );
}

/** Limit of changes that wait for the state they build on; above it, the state is requested again. */
const MAX_WAITING = 1_000;

/** A topic that the leader tab relays. A batch is applied if it continues from the position; otherwise the state is requested again. */
export class RelayedTopic implements Relayed {
  readonly #name: string;
  readonly #sink: TopicSink;
  readonly #signal: AbortSignal;
  readonly #ask: (position: Cursor | undefined) => FollowRequest;
  #request: FollowRequest | undefined;
  /** The parts of the state received so far; undefined when complete. */
  #parts: StoredDocument[] | undefined = [];
  #queued: Batch[] = [];
  /** The topic's phase in the leader tab. */
  #status: Parameters<TopicSink["phase"]> = ["replaying"];
  #steps: Promise<void> = Promise.resolve();

  constructor(
    name: string,
    sink: TopicSink,
    signal: AbortSignal,
    ask: (position: Cursor | undefined) => FollowRequest,
  ) {
    this.#name = name;
    this.#sink = sink;
    this.#signal = signal;
    this.#ask = ask;
  }

  ask(): void {
    this.#parts = [];
    this.#queued = [];
    this.#request = this.#ask(this.#sink.position());
    this.#show();
  }

  lost(): void {
    this.#request = undefined;
    this.#parts = [];
    this.#sink.phase(this.#sink.position() ? "stale" : "loading");
  }

  stopped(): void {
    this.#request = undefined;
    this.#sink.phase("offline");
  }

  receive(message: FromLeader): void {
    if (!this.#request) return;
    switch (message.type) {
      case "replaced":
        return this.ask();
      case "phase":
        this.#status = [message.phase, errorOf(message.error)];
        return this.#show();
      case "current":
        if (message.ask === this.#request.number) this.#caughtUp(this.#request);
        return;
      case "part": {
        if (message.ask !== this.#request.number || !this.#parts) return;
        const { documents = [], end } = message.part;
        for (const document of documents) this.#parts.push(document);
        if (!end) return this.#request.next();
        const [all, request] = [this.#parts, this.#request];
        this.#step(request, async () => {
          await this.#sink.replace(all, end.cursor as Cursor);
          this.#caughtUp(request);
        });
        return;
      }
      case "batch":
        if (!this.#parts) return this.#apply(this.#request, message.batch);
        if (this.#queued.push(message.batch) > MAX_WAITING) this.ask();
    }
  }

  #caughtUp(request: FollowRequest): void {
    this.#parts = undefined;
    this.#show();
    for (const batch of this.#queued.splice(0)) this.#apply(request, batch);
  }

  #apply(request: FollowRequest, { from, updates, through }: Batch): void {
    this.#step(request, async () => {
      const position = this.#sink.position();
      if (reaches(position, through)) return;
      if (!reaches(position, from)) return this.ask();
      await this.#sink.apply(updates, through);
    });
  }

  /** Serialises steps, and skips those of an older request. */
  #step(request: FollowRequest, work: () => Promise<void>): void {
    const current = () => this.#request === request && !this.#signal.aborted;
    this.#steps = this.#steps
      .then(() => (current() ? work() : undefined))
      .catch((error: unknown) => {
        request.failed(this.#name, error);
        if (current()) this.ask();
      });
  }

  #show(): void {
    const [phase, error] = this.#status;
    const behind = this.#parts !== undefined && (phase === "live" || phase === "replaying");
    const own: TopicPhase =
      behind || phase === "loading" ? (this.#sink.position() ? "replaying" : "loading") : phase;
    this.#sink.phase(own, error);
  }
}

/** A conversation that the leader tab relays. The conversation itself detects duplicates and gaps by sequence number. */
export class RelayedConversation implements Relayed {
  readonly #sink: ConversationSink;
  readonly #ask: (position: string | undefined) => FollowRequest;
  #request: FollowRequest | undefined;
  /** The parts of the state received so far; undefined when complete. */
  #parts: ConversationState["messages"][number][] | undefined = [];
  #queued: ConversationFrame[] = [];
  #status: Parameters<ConversationSink["health"]> = [false];

  constructor(sink: ConversationSink, ask: (position: string | undefined) => FollowRequest) {
    this.#sink = sink;
    this.#ask = ask;
  }

  ask(): void {
    this.#parts = [];
    this.#queued = [];
    this.#request = this.#ask(this.#sink.position());
    this.#show();
  }

  lost(): void {
    this.#request = undefined;
    this.#sink.health(false, leaderSilent());
  }

  stopped(): void {
    this.#request = undefined;
    this.#sink.health(false);
  }

  receive(message: FromLeader): void {
    if (!this.#request) return;
    switch (message.type) {
      case "replaced":
        return this.ask();
      case "health":
        this.#status = [message.live, errorOf(message.error)];
        return this.#show();
      case "current":
        if (message.ask === this.#request.number) this.#caughtUp();
        return;
      case "part": {
        if (message.ask !== this.#request.number || !this.#parts) return;
        const { messages = [], end } = message.part;
        this.#parts.push(...messages);
        if (!end) return this.#request.next();
        this.#sink.restore({ ...(end as Omit<ConversationState, "messages">), messages: this.#parts });
        return this.#caughtUp();
      }
      case "frame":
        if (!this.#parts) return this.#sink.frame(message.frame);
        if (this.#queued.push(message.frame) > MAX_WAITING) this.ask();
    }
  }

  #caughtUp(): void {
    this.#parts = undefined;
    const request = this.#request;
    for (const frame of this.#queued.splice(0)) {
      // A gap makes the conversation follow again.
      if (this.#request === request) this.#sink.frame(frame);
    }
    this.#show();
  }

  #show(): void {
    const [live, error] = this.#status;
    this.#sink.health(live && this.#parts === undefined, error);
  }
}
