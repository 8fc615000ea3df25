/** Coalesces concurrent calls: calls made while a run is under way share the next run. */
export class SingleFlight<T> {
  readonly #work: () => Promise<T>;
  #running: Promise<T> | undefined;
  #next: Promise<T> | undefined;

  constructor(work: () => Promise<T>) {
    this.#work = work;
  }

  /** The result of a run that begins after this call. */
  run(): Promise<T> {
    if (!this.#running) return this.#begin();
    this.#next ??= this.#running
      .then(
        () => {},
        () => {},
      )
      .then(() => {
        this.#next = undefined;
        return this.#begin();
      });
    return this.#next;
  }

  #begin(): Promise<T> {
    const running = this.#work();
    this.#running = running;
    const done = () => {
      if (this.#running === running) this.#running = undefined;
    };
    running.then(done, done);
    return running;
  }
}
