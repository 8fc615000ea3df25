import { systemClock } from "../../../../packages/server/src/kit/clock.ts";
import { uuidv7 } from "../../../../packages/server/src/kit/ids.ts";
import { serve } from "../../kit/program.ts";
import { percentile } from "../../kit/stats.ts";
import { type BoardStore, CALL, payload } from "../bench.ts";
import { CALLER, type KhalaBoard, NOOP, openKhalaBoard } from "../khala_board.ts";

/** How a run went. Times are milliseconds. */
export interface Smoke {
  readonly makespan: number;
  readonly p50: number;
  readonly p95: number;
}

const newId = uuidv7(systemClock);
/** What is known of a run: when each artifact was published, and how long it took. */
class Run {
  readonly #publishedAt = new Map<string, number>();
  readonly #took: number[] = [];
  readonly #count: number;
  readonly #done = Promise.withResolvers<void>();
  readonly #from = performance.now();

  constructor(count: number) {
    this.#count = count;
  }

  published(id: string): void {
    this.#publishedAt.set(id, performance.now());
  }

  settled(id: string): void {
    const at = this.#publishedAt.get(id);
    if (at === undefined) return;
    this.#publishedAt.delete(id);
    this.#took.push(performance.now() - at);
    if (this.#took.length === this.#count) this.#done.resolve();
  }

  async end(): Promise<Smoke> {
    await this.#done.promise;
    const makespan = performance.now() - this.#from;
    const sorted = this.#took.sort((a, b) => a - b);
    return { makespan, p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95) };
  }
}

let board: KhalaBoard | undefined;
let run = new Run(0);

const methods = {
  async open(store: BoardStore): Promise<void> {
    board = await openKhalaBoard(store, { works: true, onSettled: (task) => run.settled(task.id) });
  },

  /** Publishes so many as fast as they are taken, and waits until all are settled. */
  async board({ count }: { count: number }): Promise<Smoke> {
    run = new Run(count);
    let next = 0;
    const publish = async () => {
      while (next < count) {
        const size = Math.min(CALL.size, count - next);
        const drafts = Array.from({ length: size }, (_, i) => draft(next + i));
        next += size;
        for (const { id } of drafts) run.published(id);
        await board!.plane.publish(CALLER, drafts);
      }
    };
    await Promise.all(Array.from({ length: CALL.atOnce }, publish));
    return await run.end();
  },

  /** The same agent without a board: artifacts are in a map, and wait in a list. */
  async ideal({ count }: { count: number }): Promise<Smoke> {
    run = new Run(count);
    const artifacts = new Map<string, ReturnType<typeof draft>>();
    const work = async (queue: readonly string[]) => {
      for (const id of queue) {
        const artifact = { ...artifacts.get(id)!, ...REST };
        const task = { id, artifact, artifacts: [artifact], attempt: 1, ...NO_TRACE, idempotencyKey: id };
        await NOOP.options.run!(task, new AbortController().signal);
        run.settled(id);
      }
    };
    for (let next = 0; next < count; next += CALL.size) {
      const drafts = Array.from({ length: Math.min(CALL.size, count - next) }, (_, i) => draft(next + i));
      for (const each of drafts) {
        run.published(each.id);
        artifacts.set(each.id, each);
      }
      await work(drafts.map(({ id }) => id));
    }
    return await run.end();
  },
};

const REST = {
  tags: [],
  produced_by: "user:publisher",
  visibility: { kind: "org" },
  version: 1,
  created_at: "2026-01-01T00:00:00.000Z",
  org_id: "bench",
  depth: 0,
};
const NO_TRACE = { correlationId: undefined, traceparent: undefined };

function draft(n: number) {
  return { id: newId(), type: "Finding", payload: payload(n) };
}

/** What this program can be asked. */
export type SmokeProgram = typeof methods;

serve(methods, () => board?.stop());
