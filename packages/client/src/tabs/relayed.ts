import { KhalaError } from "@khala/contracts";
import type { ConversationFrame, ConversationSink, ConversationState } from "../conversation/source.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { reaches } from "../sync/cursor.ts";
import type { TopicPhase, TopicSink } from "../sync/source.ts";
import { type Batch, errorOf, type FromLeader } from "./messages.ts";

/** A question to the tab that leads. */
export interface Question {
  readonly number: number;
  /** Asks for the next part of the answer. */
  next(): void;
  failed(name: string, error: unknown): void;
}

/** Something that is followed through the tab that leads. */
export interface Relayed {
  /** There is a leader, perhaps a new one: asks for what is missing. */
  ask(): void;
  /** The leader does not answer. */
  lost(): void;
  /** This tab does not follow any more. */
  stopped(): void;
  receive(message: FromLeader): void;
}

/** Why nothing comes while another tab leads and says nothing. */
export function silent(): KhalaError {
  return new KhalaError(
    "unavailable",
    "The tab that holds the connection does not answer. Look at it, or close it.",
  );
}

/** More batches than this do not wait for the state that they go on from: it is asked for again. */
const MAX_WAITING = 1_000;

/** A topic that comes from the tab that leads. What counts is the position: a batch is applied where it goes on, and asked for where not. */
export class RelayedTopic implements Relayed {
  readonly #name: string;
  readonly #sink: TopicSink;
  readonly #signal: AbortSignal;
  readonly #ask: (position: Cursor | undefined) => Question;
  #question: Question | undefined;
  /** What has come of the state so far; undefined when this tab has all of it. */
  #parts: StoredDocument[] | undefined = [];
  #waiting: Batch[] = [];
  /** How the topic stands in the tab that leads. */
  #standing: Parameters<TopicSink["phase"]> = ["replaying"];
  #steps: Promise<void> = Promise.resolve();

  constructor(
    name: string,
    sink: TopicSink,
    signal: AbortSignal,
    ask: (position: Cursor | undefined) => Question,
  ) {
    this.#name = name;
    this.#sink = sink;
    this.#signal = signal;
    this.#ask = ask;
  }

  ask(): void {
    this.#parts = [];
    this.#waiting = [];
    this.#question = this.#ask(this.#sink.position());
    this.#show();
  }

  lost(): void {
    this.#question = undefined;
    this.#parts = [];
    this.#sink.phase(this.#sink.position() ? "stale" : "loading");
  }

  stopped(): void {
    this.#question = undefined;
    this.#sink.phase("offline");
  }

  receive(message: FromLeader): void {
    if (!this.#question) return;
    switch (message.type) {
      case "replaced":
        return this.ask();
      case "phase":
        this.#standing = [message.phase, errorOf(message.error)];
        return this.#show();
      case "current":
        if (message.ask === this.#question.number) this.#caughtUp(this.#question);
        return;
      case "part": {
        if (message.ask !== this.#question.number || !this.#parts) return;
        const { documents = [], end } = message.part;
        for (const document of documents) this.#parts.push(document);
        if (!end) return this.#question.next();
        const [all, question] = [this.#parts, this.#question];
        this.#step(question, async () => {
          await this.#sink.replace(all, end.cursor as Cursor);
          this.#caughtUp(question);
        });
        return;
      }
      case "batch":
        if (!this.#parts) return this.#apply(this.#question, message.batch);
        if (this.#waiting.push(message.batch) > MAX_WAITING) this.ask();
    }
  }

  #caughtUp(question: Question): void {
    this.#parts = undefined;
    this.#show();
    for (const batch of this.#waiting.splice(0)) this.#apply(question, batch);
  }

  #apply(question: Question, { from, updates, through }: Batch): void {
    this.#step(question, async () => {
      const position = this.#sink.position();
      if (reaches(position, through)) return;
      if (!reaches(position, from)) return this.ask();
      await this.#sink.apply(updates, through);
    });
  }

  /** One thing after the other, and nothing that belongs to an older question. */
  #step(question: Question, work: () => Promise<void>): void {
    const current = () => this.#question === question && !this.#signal.aborted;
    this.#steps = this.#steps
      .then(() => (current() ? work() : undefined))
      .catch((error: unknown) => {
        question.failed(this.#name, error);
        if (current()) this.ask();
      });
  }

  #show(): void {
    const [phase, error] = this.#standing;
    const behind = this.#parts !== undefined && (phase === "live" || phase === "replaying");
    const own: TopicPhase =
      behind || phase === "loading" ? (this.#sink.position() ? "replaying" : "loading") : phase;
    this.#sink.phase(own, error);
  }
}

/** A conversation that comes from the tab that leads. What comes twice, or leaves a gap, the conversation itself sees by its sequence. */
export class RelayedConversation implements Relayed {
  readonly #sink: ConversationSink;
  readonly #ask: (position: string | undefined) => Question;
  #question: Question | undefined;
  /** What has come of the state so far; undefined when this tab has all of it. */
  #parts: ConversationState["messages"][number][] | undefined = [];
  #waiting: ConversationFrame[] = [];
  #standing: Parameters<ConversationSink["health"]> = [false];

  constructor(sink: ConversationSink, ask: (position: string | undefined) => Question) {
    this.#sink = sink;
    this.#ask = ask;
  }

  ask(): void {
    this.#parts = [];
    this.#waiting = [];
    this.#question = this.#ask(this.#sink.position());
    this.#show();
  }

  lost(): void {
    this.#question = undefined;
    this.#sink.health(false, silent());
  }

  stopped(): void {
    this.#question = undefined;
    this.#sink.health(false);
  }

  receive(message: FromLeader): void {
    if (!this.#question) return;
    switch (message.type) {
      case "replaced":
        return this.ask();
      case "health":
        this.#standing = [message.live, errorOf(message.error)];
        return this.#show();
      case "current":
        if (message.ask === this.#question.number) this.#caughtUp();
        return;
      case "part": {
        if (message.ask !== this.#question.number || !this.#parts) return;
        const { messages = [], end } = message.part;
        this.#parts.push(...messages);
        if (!end) return this.#question.next();
        this.#sink.restore({ ...(end as Omit<ConversationState, "messages">), messages: this.#parts });
        return this.#caughtUp();
      }
      case "frame":
        if (!this.#parts) return this.#sink.frame(message.frame);
        if (this.#waiting.push(message.frame) > MAX_WAITING) this.ask();
    }
  }

  #caughtUp(): void {
    this.#parts = undefined;
    const question = this.#question;
    for (const frame of this.#waiting.splice(0)) {
      // A gap makes the conversation follow anew.
      if (this.#question === question) this.#sink.frame(frame);
    }
    this.#show();
  }

  #show(): void {
    const [live, error] = this.#standing;
    this.#sink.health(live && this.#parts === undefined, error);
  }
}
