import type { Environment } from "../environment.ts";
import type { ConversationStore } from "./conversation_store.ts";
import type { ConversationState } from "./source.ts";

/** While words come, they are written down no more often than this. */
const EVERY_MS = 1_000;

/** One conversation on this device: what it was, and from then on what it becomes. */
export class KeptConversation {
  readonly #store: ConversationStore;
  readonly #convId: string;
  readonly #environment: Environment;
  /** Whether this tab writes. */
  readonly #storing: () => boolean;
  /** What is still to be written. */
  #next: ConversationState | undefined;
  #writing = false;
  #opened = true;
  /** The storage took no more: it is tried again when the conversation is opened again. */
  #failed = false;
  #cancel: (() => void) | undefined;

  constructor(store: ConversationStore, convId: string, environment: Environment, storing: () => boolean) {
    this.#store = store;
    this.#convId = convId;
    this.#environment = environment;
    this.#storing = storing;
  }

  load(): Promise<ConversationState | undefined> {
    return this.#store.load(this.#convId);
  }

  /** Writes it in a while, with what comes until then; or at once. */
  changed(state: ConversationState, atOnce: boolean): void {
    if (!this.#storing() || this.#failed) return;
    this.#next = state;
    if (atOnce) return this.flush();
    if (this.#writing) return;
    this.#cancel ??= this.#environment.timer(EVERY_MS, () => this.flush());
  }

  /** Writes what has not been written yet. */
  flush(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    const next = this.#next;
    this.#next = undefined;
    if (next) void this.#write(next);
  }

  remove(): void {
    this.#next = undefined;
    this.flush();
    void this.#store.remove(this.#convId);
  }

  async #write(state: ConversationState): Promise<void> {
    this.#writing = true;
    const opened = this.#opened;
    this.#opened = false;
    this.#failed = !(await this.#store.save(this.#convId, state, opened));
    this.#writing = false;
    // What came meanwhile has waited for this.
    if (this.#next) this.changed(this.#next, false);
  }
}
