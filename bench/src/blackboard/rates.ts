import type { Effort } from "../kit/plane.ts";
import { quietest, type Window } from "../kit/quiet.ts";
import { range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import type { Flow, Steady } from "./flow.ts";

/** Until as many wait as ever. */
const RAMP_MS = 1_000;
/** Turns of several systems take as many times as long. */
const TURNS_LONG_MS = 240_000;

/** What happens around a turn, and is not measured. */
interface Around<Name extends string> {
  before?(name: Name): Promise<void>;
  /** While it warms up, which lasts until this has ended. */
  meanwhile?(name: Name): Promise<void>;
  /** How long a turn is measured; unless set, 4 s, and 1 s in quick mode. */
  readonly ms?: number;
}

/**
 * Measures several systems in turns, each while the others rest, so that a machine that becomes slower or faster favours
 * nobody: a window has one turn of each, in their order.
 */
export async function measureInTurns<Name extends string>(
  effort: Effort,
  flows: Readonly<Record<Name, Flow>>,
  {
    before = async () => {},
    meanwhile = async () => {},
    ms = effort.quick ? 1_000 : 4_000,
  }: Around<Name> = {},
): Promise<Window<Record<Name, Steady>>[]> {
  const names = Object.keys(flows) as Name[];
  for (const name of names) await flows[name].rest();
  const turn = async (name: Name) => {
    await before(name);
    let isOver = false;
    const other = meanwhile(name).finally(() => {
      isOver = true;
    });
    do await flows[name].flow(RAMP_MS);
    while (!isOver);
    await other;
    const steady = await flows[name].window(ms);
    await flows[name].rest();
    return steady;
  };
  const round = async () => {
    const turns: Partial<Record<Name, Steady>> = {};
    for (const name of names) turns[name] = await turn(name);
    return turns as Record<Name, Steady>;
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
