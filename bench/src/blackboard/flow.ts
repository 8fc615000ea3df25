import { setTimeout } from "node:timers/promises";
import type { Effort } from "../kit/plane.ts";
import { treeCpuSeconds } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { program } from "./bench.ts";
import type { QueueProgram } from "./queue.ts";

/** How many wait at any time, and how many are worked on before the warm-up begins. */
interface Load {
  readonly ahead: number;
  readonly begun: number;
}
/** Enough that no worker is idle, and fewer than any queue minds. */
const USUAL: Load = { ahead: 5_000, begun: 1_000 };
const LOOK_EVERY_MS = 20;
const STALLED_MS = 60_000;

type Count = Awaited<ReturnType<QueueProgram<unknown>["count"]>>;

/** What one window shows. */
export interface Steady {
  /** Hops per second. Jobs that move on together end in bursts, so that jobs of a short window say nothing. */
  readonly rate: number;
  /** Microseconds that each process was busy for a hop. */
  readonly publisherMicros: number;
  readonly workerMicros: number;
  /** The same of the store, where its process is known. */
  readonly storeMicros: number;
}

/** A queue with a publisher and a worker that go on from one window to the next, or rest between them. */
export interface Flow extends AsyncDisposable {
  /** Lets it flow for so long, without a look. */
  flow(ms: number): Promise<void>;
  window(ms: number): Promise<Steady>;
  /** Until nothing is left of what was published. */
  rest(): Promise<void>;
}

/** Starts both, and lets them work until they are warm. */
export async function openFlow<Where>(
  { quick }: Effort,
  name: string,
  where: Where,
  storePid?: number,
  { ahead, begun }: Load = USUAL,
): Promise<Flow> {
  await using stack = new AsyncDisposableStack();
  const publisher = stack.use(startProgram<QueueProgram<Where>>(program(name)));
  const worker = stack.use(startProgram<QueueProgram<Where>>(program(name)));
  // One after the other: the first may make tables or topics.
  await publisher.call("publisher", where);
  await worker.call("worker", where);
  const pids = [publisher.pid, worker.pid, ...(storePid === undefined ? [] : [storePid])];

  /** Keeps so many waiting until it is time to end, and returns the counts at the beginning and at the end. */
  async function run(ends: (from: Count, now: Count) => boolean) {
    const from = await worker.call("count", undefined);
    for (let now = from; ; now = await worker.call("count", undefined)) {
      await publisher.call("allow", { total: now.settled + ahead });
      if (ends(from, now)) return { from, to: now };
      if (now.settled === from.settled && now.at - from.at > STALLED_MS)
        throw new Error(`${name} has worked on nothing for ${STALLED_MS / 1_000} s.`);
      await setTimeout(LOOK_EVERY_MS);
    }
  }
  const lasting = (ms: number) => run((from, now) => now.at - from.at >= ms);

  // The first member of a group waits for it: the warm-up begins when work is under way.
  await run((from, now) => now.settled - from.settled >= begun);
  await lasting(quick ? 500 : 3_000);
  const processes = stack.move();
  return {
    async flow(ms) {
      await lasting(ms);
    },
    async window(ms) {
      const watches = pids.map(watchMicros);
      const { from, to } = await lasting(ms);
      const hops = to.hops - from.hops;
      const [publisherMicros, workerMicros, storeMicros = Number.NaN] = watches.map((used) => used() / hops);
      return {
        rate: (hops / (to.at - from.at)) * 1_000,
        publisherMicros: publisherMicros!,
        workerMicros: workerMicros!,
        storeMicros,
      };
    },
    async rest() {
      await worker.call("idle", { total: await publisher.call("published", undefined) });
    },
    [Symbol.asyncDispose]: () => processes.disposeAsync(),
  };
}

/** Microseconds of CPU that a process and its children used since. */
function watchMicros(pid: number): () => number {
  const before = treeCpuSeconds(pid);
  return () => (treeCpuSeconds(pid) - before) * 1e6;
}
