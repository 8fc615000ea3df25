/** The places that all agents of a process share, so that their sum is bounded too. */
export interface Slots {
  /** Waits for a place, higher priorities first, then who came first. Gives its release, or undefined on abort. */
  take(priority: number, signal: AbortSignal): Promise<(() => void) | undefined>;
  /** A place at once, if one is free. */
  takeFree(): (() => void) | undefined;
  readonly free: number;
  readonly waiting: number;
}

interface Waiter {
  readonly priority: number;
  readonly enter: () => void;
}

/** Opens so many places. */
export function openSlots(count: number): Slots {
  let free = count;
  /** In the order in which they enter. */
  const queue: Waiter[] = [];

  function release(): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      // Handed over directly: nobody who comes now can pass those who wait.
      const next = queue.shift();
      if (next) next.enter();
      else free++;
    };
  }

  function takeFree(): (() => void) | undefined {
    if (free === 0) return undefined;
    free--;
    return release();
  }

  return {
    takeFree,
    async take(priority, signal) {
      if (signal.aborted) return undefined;
      const there = takeFree();
      if (there) return there;
      return new Promise((resolve) => {
        const abort = () => {
          queue.splice(queue.indexOf(waiter), 1);
          resolve(undefined);
        };
        const waiter = {
          priority,
          enter() {
            signal.removeEventListener("abort", abort);
            resolve(release());
          },
        };
        queue.splice(placeOf(priority, queue), 0, waiter);
        signal.addEventListener("abort", abort, { once: true });
      });
    },
    get free() {
      return free;
    },
    get waiting() {
      return queue.length;
    },
  };
}

/** Behind all that have at least this priority. */
function placeOf(priority: number, queue: readonly Waiter[]): number {
  let low = 0;
  let high = queue.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (queue[middle]!.priority >= priority) low = middle + 1;
    else high = middle;
  }
  return low;
}
