import type { Artifact } from "../model/artifact.ts";
import { arrayText } from "./arrays.ts";

/** More ids would make a long row of a short one. */
const MOST = 64;

/**
 * What of artifacts that are put on the board together is listed together, each org's own: the number of the last one of
 * each run, and the ids of all of it; null where each is listed alone. Given in the order of their ids.
 */
export function runColumns(
  artifacts: readonly Artifact[],
  numbers: readonly number[],
): [lasts: number[] | null, ids: string[] | null] {
  // A run has to be all that the org published between its first and its last, and to name it by ids alone.
  const isInOrder = numbers.every((number, i) => i === 0 || numbers[i - 1]! < number);
  if (!isInOrder || artifacts.some(({ version }) => version !== 1)) return [null, null];
  const lasts: number[] = [];
  const ids: string[] = [];
  for (const places of byOrg(artifacts))
    for (let from = 0; from < places.length; from += MOST) {
      const run = places.slice(from, from + MOST);
      lasts.push(numbers[run.at(-1)!]!);
      ids.push(arrayText(run.map((place) => artifacts[place]!.id)));
    }
  return [lasts, ids];
}

function byOrg(artifacts: readonly Artifact[]): Iterable<readonly number[]> {
  const places = artifacts.map((_, i) => i);
  const [first] = artifacts;
  // Most times all are one org's.
  if (artifacts.every(({ org_id }) => org_id === first?.org_id)) return [places];
  return Map.groupBy(places, (place) => artifacts[place]!.org_id).values();
}
