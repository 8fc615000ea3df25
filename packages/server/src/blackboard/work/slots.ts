/** The execution slots that all agents of a process share. */
export interface Slots {
  /** Waits for a slot, by priority, then in order of arrival. Resolves with its release, or undefined on abort. */
  take(priority: number, signal: AbortSignal): Promise<(() => void) | undefined>;
  /** A free slot, if there is one now. */
  takeFree(): (() => void) | undefined;
  readonly free: number;
  readonly waiting: number;
}

interface Waiter {
  readonly priority: number;
  readonly enter: () => void;
}

/** Opens a number of slots. */
export function openSlots(count: number): Slots {
  let free = count;
  /** In the order in which they get a slot. */
  const queue: Waiter[] = [];

  function release(): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      // Handed over directly, so that a newcomer cannot overtake the queue.
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

/** The position behind all waiters of at least this priority. */
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
