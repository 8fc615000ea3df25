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

/** What a worker reports. */
export interface Progress {
  /** Jobs are done. */
  settled(jobs: number): void;
  /** Handlers ran, where a job takes several. */
  ran(hops: number): void;
}

/** A queue that is measured: who publishes and who works are processes of their own. */
export interface Queue<Where> {
  publisher(where: Where): Promise<Publishing>;
  worker(where: Where, progress: Progress): Promise<Working>;
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
  let hops = 0;

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

    async worker(where: Where): Promise<void> {
      const working = await queue.worker(where, {
        settled(jobs) {
          settled += jobs;
        },
        ran(more) {
          hops += more;
        },
      });
      closing.push(() => working.close());
    },

    /** Lets so many be published in all, and returns at once. */
    async allow({ total }: { total: number }): Promise<void> {
      if (failure) throw failure;
      allowed = Math.max(allowed, total);
      pump();
    },

    async count(_: undefined): Promise<{ settled: number; hops: number; at: number }> {
      if (failure) throw failure;
      // A job of a single hop reports no others.
      return { settled, hops: hops || settled, at: performance.now() };
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
