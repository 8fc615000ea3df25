import { setTimeout } from "node:timers/promises";
import { serve } from "../kit/program.ts";
import { CALL, payload } from "./bench.ts";

/** The publishing side of a queue. */
export interface Publishing {
  /** Resolves when these jobs are durable. */
  put(payloads: readonly ReturnType<typeof payload>[]): Promise<void>;
  close(): Promise<void>;
}

/** The working side of a queue. */
export interface Working {
  close(): Promise<void>;
}

/** A queue that is measured: who publishes and who works are processes of their own. */
export interface Queue<Where> {
  publisher(where: Where): Promise<Publishing>;
  /** Calls `settled` for jobs that are done. */
  worker(where: Where, settled: (jobs: number) => void): Promise<Working>;
}

const STALLED_MS = 60_000;

/** What the program of a queue can be asked. One process has one side. */
function queueMethods<Where>(queue: Queue<Where>) {
  const closing: (() => Promise<void>)[] = [];
  let publishing: Publishing | undefined;
  let published = 0;
  let begun = 0;
  let allowed = 0;
  let failure: unknown;
  let settled = 0;
  /** When the count came to this many, for those that are waited for. */
  const reached = new Map<number, number>();

  function pump(): void {
    while (publishing && begun - published < CALL.atOnce * CALL.size && begun < allowed) {
      const first = begun;
      begun += CALL.size;
      const payloads = Array.from({ length: CALL.size }, (_, i) => payload(first + i));
      publishing.put(payloads).then(
        () => {
          published += CALL.size;
          pump();
        },
        (error) => {
          failure ??= error;
        },
      );
    }
  }

  async function until(done: () => boolean, progress: () => number): Promise<void> {
    let last = progress();
    let since = performance.now();
    while (!done()) {
      if (failure) throw failure;
      if (progress() !== last) {
        last = progress();
        since = performance.now();
      }
      if (performance.now() - since > STALLED_MS) throw new Error(`Nothing happens any more after ${last}.`);
      await setTimeout(5);
    }
  }

  const methods = {
    async publisher(where: Where): Promise<void> {
      publishing = await queue.publisher(where);
      closing.push(() => publishing!.close());
    },

    /** `expected` is how many there are when it starts, if it is to be timed. */
    async worker({ where, expected }: { where: Where; expected?: number }): Promise<void> {
      if (expected !== undefined) reached.set(Math.ceil(expected / 10), 0).set(expected, 0);
      const working = await queue.worker(where, (jobs) => {
        const before = settled;
        settled += jobs;
        for (const [count, at] of reached)
          if (at === 0 && before < count && settled >= count) reached.set(count, performance.now());
      });
      closing.push(() => working.close());
    },

    /** Lets so many be published in all, and returns at once. */
    async allow({ total }: { total: number }): Promise<void> {
      if (failure) throw failure;
      allowed = Math.max(allowed, total);
      pump();
    },

    /** Publishes so many, and resolves when they are there. */
    async fill({ count }: { count: number }): Promise<void> {
      allowed = begun + count;
      pump();
      await until(
        () => published >= allowed,
        () => published,
      );
    },

    async count(_: undefined): Promise<{ settled: number; at: number }> {
      if (failure) throw failure;
      return { settled, at: performance.now() };
    },

    /** Jobs per second from the first tenth to the last one. */
    async drained({ expected }: { expected: number }): Promise<number> {
      await until(
        () => settled >= expected,
        () => settled,
      );
      const tenth = Math.ceil(expected / 10);
      return ((expected - tenth) / (reached.get(expected)! - reached.get(tenth)!)) * 1_000;
    },

    /** Waits until so many were settled. */
    async idle({ total }: { total: number }): Promise<void> {
      await until(
        () => settled >= total,
        () => settled,
      );
    },

    /** Waits for what is under way, and says how many there were in all. */
    async published(_: undefined): Promise<number> {
      await until(
        () => published === begun,
        () => published,
      );
      return published;
    },
  };
  const close = async () => {
    for (const each of closing) await each();
  };
  return { methods, close };
}

/** What the program of a queue can be asked. */
export type QueueProgram<Where> = ReturnType<typeof queueMethods<Where>>["methods"];

/** Ends the program of a queue. */
export function serveQueue<Where>(queue: Queue<Where>): void {
  const { methods, close } = queueMethods(queue);
  serve(methods, close);
}
