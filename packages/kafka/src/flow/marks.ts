import { Oldest } from "./oldest.ts";

/** What is known of a task by its idempotency key: it was settled, or it waits in place for its next attempt. */
export type Mark =
  | { readonly kind: "settled" }
  | { readonly kind: "waits"; readonly attempt: number; readonly dueAt: number };

/**
 * The newest marks of a partition's tasks, up to a bound: the oldest are forgotten first. Those of tasks that are in
 * flight are always among them, since far fewer can be in flight.
 */
export class Marks {
  readonly #marks = new Map<string, Mark>();
  readonly #oldest = new Oldest(this.#marks);
  readonly #limit: number;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(key: string): Mark | undefined {
    return this.#marks.get(key);
  }

  set(key: string, mark: Mark): void {
    this.#marks.delete(key);
    this.#marks.set(key, mark);
    if (this.#marks.size > this.#limit) this.#marks.delete(this.#oldest.next()!);
  }

  get size(): number {
    return this.#marks.size;
  }
}
