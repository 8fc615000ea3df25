/** Lets a fixed number of calls run at a time, in the order of the calls. */
export class Semaphore {
  readonly #waiting: (() => void)[] = [];
  readonly #running = new Set<{ readonly since: number }>();
  #free: number;

  constructor(limit: number) {
    this.#free = limit;
  }

  async run<T>(call: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((resolve) => void this.#waiting.push(resolve));
    const running = { since: performance.now() };
    this.#running.add(running);
    try {
      return await call();
    } finally {
      this.#running.delete(running);
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free++;
    }
  }

  /** The duration of the longest running call, in milliseconds; 0 without one. */
  get longest(): number {
    const [first] = this.#running;
    return first ? performance.now() - first.since : 0;
  }
}

/**
 * A call of the addon that waits for brokers blocks a thread of libuv's pool. It has four, for the whole process: DNS
 * and crypto need them too.
 */
const waits = new Semaphore(3);
/** The client waits for the coordinator of a group without a timeout: such calls may not take every thread. */
const endless = new Semaphore(2);
const STUCK_MS = 4_500;

/** Makes a call that blocks a thread while it waits for brokers. */
export function blockingCall<T>(call: () => Promise<T>): Promise<T> {
  return waits.run(call);
}

/**
 * Makes a call that may block without end, until `late` rejects. A call that has begun then keeps its thread; one that
 * still waits for a thread is never made.
 */
export function endlessCall<T>(call: () => Promise<T>, late: Promise<never>): Promise<T> {
  let givenUp = false;
  late.catch(() => {
    givenUp = true;
  });
  // Its client may be closed by the time a thread is free.
  const made = () => (givenUp ? late : call());
  return endless.run(() => Promise.race([waits.run(made), late]));
}

let armed = false;
let abandoned = false;

/** Node waits for its threads at exit. A thread that waits for lost brokers would keep the process alive: this kills it. */
export function exitWithoutWaiting(): void {
  if (armed) return;
  armed = true;
  process.once("exit", () => {
    if (waits.longest <= (abandoned ? 0 : STUCK_MS)) return;
    // A SIGKILL would look like a lack of memory.
    process.removeAllListeners("SIGTERM");
    process.kill(process.pid, "SIGTERM");
  });
}

/** The board has stopped: the exit does not wait for calls that still block. */
export function abandonBlockingCalls(): void {
  abandoned = true;
}
