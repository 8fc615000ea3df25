/** The kinds of text that stream. */
export type Streamed = "text" | "reasoning";

interface Sent {
  readonly kind: Streamed;
  text: string;
}

/**
 * The sent part of an incomplete step. A resumed run repeats that step, and a stream
 * cannot take back what it has sent: repeated text is skipped, and different text is sent whole, as a new part.
 */
export class UnfinishedStep {
  #sent: Sent[] = [];
  /** The chunks the repeated step has to match, and how much of its first part did. */
  #expected: Sent[] = [];
  #matched = 0;
  readonly #calls = new Set<string>();

  /** The text to send for the next delta. `fresh`: it does not continue what was sent. */
  next(kind: Streamed, delta: string): { readonly text: string; readonly fresh: boolean } {
    const [first, second] = this.#expected;
    if (!first) return this.#send(kind, delta);
    if (second?.kind === kind && this.#matched === first.text.length) {
      this.#expected.shift();
      this.#matched = 0;
      return this.next(kind, delta);
    }
    const rest = first.text.slice(this.#matched);
    if (first.kind === kind && rest.startsWith(delta)) {
      this.#matched += delta.length;
      return { text: "", fresh: false };
    }
    this.#expected = [];
    if (first.kind === kind && !second && delta.startsWith(rest))
      return this.#send(kind, delta.slice(rest.length));
    this.#sent = [];
    return { ...this.#send(kind, first.text.slice(0, this.#matched) + delta), fresh: true };
  }

  /** A tool is called. */
  called(toolCallId: string): void {
    this.#expected = [];
    this.#calls.add(toolCallId);
  }

  /** A tool has answered: the step up to here is kept. */
  completed(toolCallId: string): void {
    this.#calls.delete(toolCallId);
    this.#expected = [];
    this.#sent = [];
  }

  /** The step is taken back, and made again. Returns the calls that have no result. */
  takenBack(): string[] {
    this.#expected = this.#sent.map((part) => ({ ...part }));
    this.#matched = 0;
    const open = [...this.#calls];
    this.#calls.clear();
    return open;
  }

  #send(kind: Streamed, text: string) {
    const last = this.#sent.at(-1);
    if (last?.kind === kind) last.text += text;
    else this.#sent.push({ kind, text });
    return { text, fresh: false };
  }
}

/** The error clients get for a tool call that was taken back. */
export const INTERRUPTED_CALL = "The call was interrupted.";
