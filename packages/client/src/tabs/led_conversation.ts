import type { ConversationFrame, ConversationSink, ConversationState } from "../conversation/source.ts";
import { type Led, type Question, silent } from "./led.ts";
import { errorOf, type FromLeader } from "./messages.ts";

const MAX_WAITING = 1_000;

/** A conversation that comes from the tab that leads. What comes twice, or leaves a gap, the conversation itself sees by its sequence. */
export class LedConversation implements Led {
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
