import type { Context } from "../../kit/context.ts";
import { FORGET_MS, type SetAsideItems } from "./set_aside_items.ts";

/** Items that the board's loops could not process: no item blocks the next one. It is retried later, or stored if that is no use. */
export interface SetAside {
  /** Sets an item of an org aside with its error. Returns how often it has failed. */
  failed(loop: string, org: string, item: string, error: unknown): number;
  /** The item was processed, or removed. */
  succeeded(loop: string, org: string, item: string): void;
  /** The item was refused for good and is stored with its error; the fields name it in the log. */
  refused(loop: string, fields: object, error: unknown): void;
  /** A sentence for each loop that has items set aside. It names no item, because everybody may read it. */
  problems(): string[];
}

interface Item {
  readonly failures: number;
  readonly at: number;
}

/** The loops that are reported before anything has failed. */
const LOOPS = ["board progress", "board schedules", "board parked", "board outbox", "board gather"];
/** The loops that store what is refused for good. */
const STORING_LOOPS = ["board outbox", "board gather"];
/** From this failure on an item is listed for operators. */
const LISTED_FROM = 3;
/** Items of one loop that are remembered. */
const MAX_ITEMS = 1_000;

/** Opens the list of what was set aside in this process. */
export function openSetAside(
  { clock, log, telemetry }: Pick<Context, "clock" | "log" | "telemetry">,
  stored?: Pick<SetAsideItems, "counts" | "recount" | "failing" | "recovered">,
): SetAside {
  const loops = new Map<string, Map<string, Item>>();
  const failures = telemetry.meter.createCounter("khala_board_failures_total", {
    description: "Failures to process one item of a loop of the board, by loop",
  });
  telemetry.meter
    .createObservableGauge("khala_board_set_aside", {
      description: "Items that a loop of the board could not process, by loop",
    })
    .addCallback((result) => {
      for (const [loop, items] of loops) result.observe(current(items) + storedOf(loop), { loop });
    });
  const refusals = telemetry.meter.createCounter("khala_board_refused_total", {
    description: "Items that a loop of the board refused for good",
  });
  // Alerts see the first failure as an increase only if the series start at zero.
  for (const loop of [...LOOPS, ...STORING_LOOPS]) loops.set(loop, new Map());
  for (const loop of loops.keys()) failures.add(0, { loop });
  for (const service of STORING_LOOPS) refusals.add(0, { service });

  function storedOf(loop: string): number {
    return stored?.counts().get(loop) ?? 0;
  }

  function current(items: Map<string, Item>): number {
    for (const [item, { at }] of items) {
      if (clock.now() - at < FORGET_MS) break;
      items.delete(item);
    }
    return items.size;
  }

  return {
    failed(loop, org, name, error) {
      const item = keyOf(org, name);
      const items = loops.get(loop) ?? new Map<string, Item>();
      loops.set(loop, items);
      const count = (items.get(item)?.failures ?? 0) + 1;
      // Oldest failure first.
      items.delete(item);
      items.set(item, { failures: count, at: clock.now() });
      if (items.size > MAX_ITEMS) items.delete(items.keys().next().value!);
      failures.add(1, { loop });
      const facts = { err: (error as Error).message, service: loop, org, item: name, failures: count };
      log.warn(facts, "could not process an item; it is set aside and retried");
      if (count >= LISTED_FROM) stored?.failing({ loop, org, name }, error);
      return count;
    },
    succeeded(loop, org, name) {
      const item = keyOf(org, name);
      if ((loops.get(loop)?.get(item)?.failures ?? 0) >= LISTED_FROM) stored?.recovered({ loop, org, name });
      loops.get(loop)?.delete(item);
    },
    refused(service, fields, error) {
      const facts = { err: (error as Error).message, service, ...fields };
      log.error(facts, "an item was refused for good; it is set aside until it is retried or discarded");
      refusals.add(1, { service });
      stored?.recount();
    },
    problems: () =>
      [...loops].flatMap(([loop, items]) => {
        const count = current(items) + storedOf(loop);
        return count === 0 ? [] : [`${loop}: ${count} set aside`];
      }),
  };
}

function keyOf(org: string, name: string): string {
  return `${org.length}:${org}:${name}`;
}
