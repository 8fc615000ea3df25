import type { Cursor, StoredDocument } from "../storage/storage.ts";
import type { TopicPhase, TopicSink } from "../sync/source.ts";
import type { Led, Question } from "./led.ts";
import { type Batch, errorOf, type FromLeader } from "./messages.ts";
import { reaches } from "./positions.ts";

/** More batches than this do not wait for the state that they go on from: it is asked for again. */
const MAX_WAITING = 1_000;

/** A topic that comes from the tab that leads. What counts is the position: a batch is applied where it goes on, and asked for where not. */
export class LedTopic implements Led {
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
          await this.#sink.swap(all, end.cursor as Cursor);
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
