import { createHash } from "node:crypto";
import type { Worker } from "@khala/test-support/conformance/board/worker";
import { expect } from "vitest";
import type { Artifact } from "../../../packages/server/src/blackboard/model/artifact.ts";

/** Each attempt ran once; of a key never two at a time; and, where the agent is strict, in the order of publication. */
export function checkRuns(worker: Worker, published: readonly Artifact[]): void {
  const name = worker.agent;
  expect(worker.errors).toEqual([]);
  // A task that may be passed by later tasks of its key may also run beside them.
  const overlaps = worker.overlaps.filter(
    (pair) => worker.strict || pair.every((task) => task.attempt === 1),
  );
  expect(overlaps, `${name}: tasks of one key that ran at once`).toEqual([]);
  const attempts = Map.groupBy(worker.runs, ({ task }) => task.id);
  for (const [id, runs] of attempts)
    expect(
      runs.map(({ task }) => task.attempt),
      `attempts of ${name} ${id}`,
    ).toEqual(runs.map((_, i) => i + 1));
  const firsts = worker.runs.filter(({ task }) => task.attempt === 1).map(({ task }) => task);
  const roots = new Map(published.map(({ id }, i) => [id, i]));
  for (const [key, tasks] of Map.groupBy(firsts, (task) => task.key)) {
    const order = tasks.flatMap(({ id }) => roots.get(id) ?? []);
    expect(order, `${name} ${key}: in the order of publication`).toEqual(order.toSorted((x, y) => x - y));
  }
  if (!worker.strict) return;
  for (const [key, runs] of Map.groupBy(worker.runs, ({ task }) => task.key)) {
    const ids = runs.map(({ task }) => task.id);
    const changes = ids.filter((id, i) => id !== ids[i - 1]);
    expect(changes.length, `${name} ${key}: a retry before whatever comes later`).toBe(new Set(ids).size);
  }
}

/** The same for each execution of a task, as the executor's are. */
export function outputId(id: string, agent: string, index: number): string {
  const hash = createHash("sha256").update(`${id}:${agent}:${index}`).digest("hex");
  return `${id.slice(0, 14)}7${hash.slice(0, 3)}-a${hash.slice(3, 6)}-${hash.slice(6, 18)}`;
}
