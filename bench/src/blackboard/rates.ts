import type { Effort } from "../kit/plane.ts";
import { startProgram } from "../kit/program.ts";
import { quietest, type Window } from "../kit/quiet.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { program } from "./bench.ts";
import { type Flow, openFlow, type Steady } from "./flow.ts";
import type { QueueProgram } from "./queue.ts";

const windowMs = ({ quick }: Effort) => (quick ? 1_000 : 4_000);
/** Until as many wait as ever. */
const RAMP_MS = 1_000;
/** Turns of several systems take as many times as long. */
const TURNS_LONG_MS = 240_000;

/** Measures while others are published, in windows after a warm-up, with a publisher and a worker that go on. */
export async function measureSteady<Where>(
  effort: Effort,
  name: string,
  where: Where,
  storePid?: number,
): Promise<Window<Steady>[]> {
  await using flow = await openFlow(effort, name, where, storePid);
  const windows = await quietest(effort, () => flow.window(windowMs(effort)));
  // What is left goes before anything else comes.
  await flow.rest();
  return windows;
}

/** What happens around a turn, and is not measured. */
interface Around<Name extends string> {
  before?(name: Name): Promise<void>;
  after?(name: Name): Promise<void>;
}

/** The same of a turn that begins with jobs on their way. */
interface AroundFlow<Name extends string> {
  before?(name: Name): Promise<void>;
  /** While it warms up, which lasts until this has ended. */
  meanwhile?(name: Name): Promise<void>;
}

/**
 * Measures several systems in turns, each while the others rest, so that a machine that becomes slower or faster favours
 * nobody: a window has one turn of each, in their order.
 */
export async function measureInTurns<Name extends string>(
  effort: Effort,
  flows: Readonly<Record<Name, Flow>>,
  { before = async () => {}, meanwhile = async () => {} }: AroundFlow<Name> = {},
): Promise<Window<Record<Name, Steady>>[]> {
  const names = Object.keys(flows) as Name[];
  for (const name of names) await flows[name].rest();
  return inTurns(effort, names, { before }, async (name) => {
    let isOver = false;
    const other = meanwhile(name).finally(() => {
      isOver = true;
    });
    do await flows[name].flow(RAMP_MS);
    while (!isOver);
    await other;
    const steady = await flows[name].window(windowMs(effort));
    await flows[name].rest();
    return steady;
  });
}

/** A queue's program, what it is told, and how many jobs wait before its worker starts. */
export interface Backlog {
  readonly program: string;
  readonly where: unknown;
  readonly count: number;
}

/** Lets several systems work off a backlog, in turns: jobs per second. */
export async function drainInTurns<Name extends string>(
  effort: Effort,
  backlogs: Readonly<Record<Name, Backlog>>,
  around: Around<Name>,
): Promise<Window<Record<Name, number>>[]> {
  return inTurns(effort, Object.keys(backlogs) as Name[], around, (name) => drained(backlogs[name]));
}

function inTurns<Name extends string, T>(
  effort: Effort,
  names: readonly Name[],
  { before, after }: Around<Name>,
  turn: (name: Name) => Promise<T>,
): Promise<Window<Record<Name, T>>[]> {
  const round = async () => {
    const turns: Partial<Record<Name, T>> = {};
    for (const name of names) {
      await before?.(name);
      turns[name] = await turn(name);
      await after?.(name);
    }
    return turns as Record<Name, T>;
  };
  return quietest(effort, round, { longMs: TURNS_LONG_MS });
}

/** A row's cells: the rate, and what it cost the two processes and the store. */
export function steadyCells(windows: readonly Window<Steady>[]): string[] {
  const cell = (what: keyof Steady) => {
    const values = windows.map(({ value }) => value[what]);
    return values.every(Number.isFinite) ? range(spread(values)) : "–";
  };
  return [cell("rate"), cell("publisherMicros"), cell("workerMicros"), cell("storeMicros")];
}

/** The turns of one system. */
export function turnsOf<Name extends string, T>(
  windows: readonly Window<Record<Name, T>>[],
  name: Name,
): Window<T>[] {
  return windows.map(({ value, stolen }) => ({ value: value[name], stolen }));
}

/** The median of the ratios of each round: its turns saw the same machine. */
export function medianRatio<Turns>(windows: readonly Window<Turns>[], of: (turns: Turns) => number): number {
  return spread(windows.map(({ value }) => of(value))).median;
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
export function drainRates(effort: Effort, backlog: Backlog): Promise<Window<number>[]> {
  return quietest(effort, () => drained(backlog));
}

async function drained({ program: name, where, count }: Backlog): Promise<number> {
  {
    await using publisher = startProgram<QueueProgram<unknown>>(program(name));
    await publisher.call("publisher", where);
    await publisher.call("fill", { count });
  }
  await using worker = startProgram<QueueProgram<unknown>>(program(name));
  await worker.call("worker", { where, expected: count });
  return await worker.call("drained", { expected: count });
}

/** Median, least and greatest of those that count. */
export function spreadOf(windows: readonly Window<number>[]): Spread {
  return spread(windows.map(({ value }) => value));
}
