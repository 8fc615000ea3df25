import { setTimeout } from "node:timers/promises";
import type { Effort } from "../kit/plane.ts";
import { treeCpuSeconds } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { quietest, type Window } from "../kit/quiet.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { program } from "./bench.ts";
import type { QueueProgram } from "./queue.ts";

/** Jobs that wait at any time: enough that no worker is idle, and fewer than any queue minds. */
const AHEAD = 5_000;
const BEGUN = 1_000;
const LOOK_EVERY_MS = 20;
const STALLED_MS = 60_000;

type Count = Awaited<ReturnType<QueueProgram<unknown>["count"]>>;

/** What one window shows. */
export interface Steady {
  /** Jobs per second. */
  readonly rate: number;
  /** Microseconds that each process was busy for a job. */
  readonly publisherMicros: number;
  readonly workerMicros: number;
  /** The same of the store, where its process is known. */
  readonly storeMicros: number;
}

/** Measures while others are published, in windows after a warm-up, with a publisher and a worker that go on. */
export async function measureSteady<Where>(
  effort: Effort,
  name: string,
  where: Where,
  storePid?: number,
): Promise<Window<Steady>[]> {
  await using publisher = startProgram<QueueProgram<Where>>(program(name));
  await using worker = startProgram<QueueProgram<Where>>(program(name));
  // One after the other: the first may make tables or topics.
  await publisher.call("publisher", where);
  await worker.call("worker", { where });

  /** Keeps so many waiting until it is time to end, and returns the counts at the beginning and at the end. */
  async function run(ends: (from: Count, now: Count) => boolean) {
    const from = await worker.call("count", undefined);
    for (let now = from; ; now = await worker.call("count", undefined)) {
      await publisher.call("allow", { total: now.settled + AHEAD });
      if (ends(from, now)) return { from, to: now };
      if (now.settled === from.settled && now.at - from.at > STALLED_MS)
        throw new Error(`${name} has worked on nothing for ${STALLED_MS / 1_000} s.`);
      await setTimeout(LOOK_EVERY_MS);
    }
  }
  const lasting = (ms: number) => run((from, now) => now.at - from.at >= ms);

  // Whoever joins a group first waits for it: the warm-up begins when work is under way.
  await run((from, now) => now.settled - from.settled >= BEGUN);
  await lasting(effort.quick ? 500 : 3_000);
  const windows = await quietest(effort, async () => {
    const pids = [publisher.pid, worker.pid, ...(storePid === undefined ? [] : [storePid])];
    const watches = pids.map(watchMicros);
    const { from, to } = await lasting(effort.quick ? 1_000 : 4_000);
    const jobs = to.settled - from.settled;
    const [publisherMicros, workerMicros, storeMicros = Number.NaN] = watches.map((used) => used() / jobs);
    return {
      rate: (jobs / (to.at - from.at)) * 1_000,
      publisherMicros: publisherMicros!,
      workerMicros: workerMicros!,
      storeMicros,
    };
  });
  // What is left goes before anything else comes.
  await worker.call("idle", { total: await publisher.call("published", undefined) });
  return windows;
}

/** Microseconds of CPU that a process and its children used since. */
function watchMicros(pid: number): () => number {
  const before = treeCpuSeconds(pid);
  return () => (treeCpuSeconds(pid) - before) * 1e6;
}

/** A row's cells: the rate, and what it cost the two processes and the store. */
export function steadyCells(windows: readonly Window<Steady>[]): string[] {
  const cell = (what: keyof Steady) => {
    const values = windows.map(({ value }) => value[what]);
    return values.every(Number.isFinite) ? range(spread(values)) : "–";
  };
  return [cell("rate"), cell("publisherMicros"), cell("workerMicros"), cell("storeMicros")];
}

/** The median rate. */
export function medianRate(windows: readonly Window<Steady>[]): number {
  return spread(windows.map(({ value }) => value.rate)).median;
}

/** What the cells of a row say. */
export const STEADY_HEAD = [
  "at once, per second",
  "publisher, CPU µs for each",
  "worker, CPU µs for each",
  "store, CPU µs for each",
];

/** Publishes so many while nobody works, then lets one process work them off: jobs per second, as often as told. */
export async function drainRates<Where>(
  effort: Effort,
  name: string,
  where: Where,
  count: number,
): Promise<Window<number>[]> {
  return quietest(effort, async () => {
    {
      await using publisher = startProgram<QueueProgram<Where>>(program(name));
      await publisher.call("publisher", where);
      await publisher.call("fill", { count });
    }
    await using worker = startProgram<QueueProgram<Where>>(program(name));
    await worker.call("worker", { where, expected: count });
    return await worker.call("drained", { expected: count });
  });
}

/** Median, least and greatest of those that count. */
export function spreadOf(windows: readonly Window<number>[]): Spread {
  return spread(windows.map(({ value }) => value));
}
