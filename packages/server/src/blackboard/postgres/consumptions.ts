import type { Consumption } from "./consume.ts";

/** Everything that works on tasks in this process. */
export class Consumptions {
  readonly #byAgent = new Map<string, Set<Consumption>>();

  add(consumption: Consumption): void {
    const { agent } = consumption;
    const others = this.#byAgent.get(agent);
    if (others) others.add(consumption);
    else this.#byAgent.set(agent, new Set([consumption]));
  }

  delete(consumption: Consumption): void {
    const { agent } = consumption;
    const left = this.#byAgent.get(agent);
    left?.delete(consumption);
    if (left?.size === 0) this.#byAgent.delete(agent);
  }

  agents(): string[] {
    return [...this.#byAgent.keys()];
  }

  all(): Consumption[] {
    return [...this.#byAgent.values()].flatMap((each) => [...each]);
  }

  of(agent: string): Iterable<Consumption> {
    return this.#byAgent.get(agent) ?? [];
  }

  /** There may be tasks of this agent to claim. */
  wake(agent: string): void {
    for (const consumption of this.of(agent)) consumption.wake();
  }
}
