import type { Statement } from "../../database/database.ts";
import type { BoardAgent, Routed } from "../board.ts";
import type { Task } from "../model/task.ts";
import { intArray, quotedArrayText, textArray, unless, uuidArray } from "./arrays.ts";

/** What is published for agents that have a batch. */
export interface Arrivals {
  isBatched(agent: string): boolean;
  /** The same without the tasks that go into batches; nothing if there are no others. */
  without(items: readonly Routed[]): readonly Routed[];
  /** Puts those down, in the transaction that puts the artifacts on the board. */
  statements(items: readonly Routed[], bodies: readonly string[], now: number): Statement[];
}

interface Arrival {
  readonly agent: string;
  readonly org: string;
  readonly key: string;
  readonly ids: string[];
  readonly versions: number[];
  readonly sizes: number[];
  readonly correlations: (string | null)[];
}

/** In one row: more would not fit into a page. */
const MOST_TOGETHER = 300;

/**
 * Adds arrivals: agents, orgs, keys, and of each how many, and correlations as the text of an array; ids, versions and
 * sizes of all of them, one after the other, where no versions are the first ones; when; and the id and version of an
 * artifact of the same commit. That commit may have left all of its artifacts to the router.
 */
const ARRIVE = `
INSERT INTO runtime.board_arrivals (agent, org_id, key, members, ids, versions, sizes, correlations, arrived_at)
SELECT u.agent, u.org, u.key, u.members, ($6::uuid[])[u.until - u.members + 1:u.until],
  coalesce(($7::int[])[u.until - u.members + 1:u.until], array_fill(1, ARRAY[u.members])),
  ($8::int[])[u.until - u.members + 1:u.until], u.correlations::text[], $9::bigint
FROM (
  SELECT u.*, sum(u.members) OVER (ORDER BY u.n)::int AS until
  FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[]) WITH ORDINALITY
    AS u(agent, org, key, members, correlations, n)
) u
WHERE EXISTS (
  SELECT FROM runtime.board_artifacts a WHERE a.id = $10::uuid AND a.version = $11::int AND a.routes IS NOT NULL
) ORDER BY u.n`;

/** The arrivals of the agents that have a batch. */
export function arrivalsOf(agents: readonly BoardAgent[]): Arrivals {
  const batches = new Map(agents.flatMap(({ agent, batch }) => (batch ? [[agent, batch] as const] : [])));
  const isBatched = (agent: string) => batches.has(agent);
  const keyOf = ({ agent, key, artifacts: [artifact] }: Task) =>
    batches.get(agent)!.byKey ? key : artifact.org_id;

  return {
    isBatched,

    without(items) {
      if (batches.size === 0) return items;
      if (items.every(({ routing }) => routing.tasks.every(({ agent }) => isBatched(agent)))) return [];
      return items.map((item): Routed => {
        const { artifact, routing } = item;
        if (!routing.tasks.some(({ agent }) => isBatched(agent))) return item;
        const tasks = routing.tasks.filter(({ agent }) => !isBatched(agent));
        return { artifact, routing: { ...routing, tasks } };
      });
    },

    statements(items, bodies, now) {
      if (batches.size === 0) return [];
      const arrivals = together(items, bodies, isBatched, keyOf);
      if (arrivals.length === 0) return [];
      const { id, version } = items[0]!.artifact;
      return [
        {
          name: "board_arrive",
          text: ARRIVE,
          values: [
            textArray(arrivals.map(({ agent }) => agent)),
            textArray(arrivals.map(({ org }) => org)),
            textArray(arrivals.map(({ key }) => key)),
            arrivals.map(({ ids }) => ids.length),
            textArray(arrivals.map(({ correlations }) => correlationsText(correlations))),
            uuidArray(arrivals.flatMap(({ ids }) => ids)),
            versionsOf(arrivals.flatMap(({ versions }) => versions)),
            intArray(arrivals.flatMap(({ sizes }) => sizes)),
            now,
            id,
            version,
          ],
        },
      ];
    },
  };
}

function together(
  items: readonly Routed[],
  bodies: readonly string[],
  isBatched: (agent: string) => boolean,
  keyOf: (task: Task) => string,
): Arrival[] {
  const all: Arrival[] = [];
  const latest = new Map<string, Arrival>();
  let arrival: Arrival | undefined;
  items.forEach(({ artifact, routing }, i) => {
    for (const task of routing.tasks) {
      const { agent } = task;
      if (!isBatched(agent)) continue;
      const org = artifact.org_id;
      const key = keyOf(task);
      // Most times it is that of the one before.
      if (arrival?.agent !== agent || arrival.org !== org || arrival.key !== key)
        arrival = latest.get(nameOf(agent, org, key));
      if (!arrival || arrival.ids.length === MOST_TOGETHER) {
        arrival = { agent, org, key, ids: [], versions: [], sizes: [], correlations: [] };
        latest.set(nameOf(agent, org, key), arrival);
        all.push(arrival);
      }
      arrival.ids.push(artifact.id);
      arrival.versions.push(artifact.version);
      arrival.sizes.push(Buffer.byteLength(bodies[i]!));
      arrival.correlations.push(artifact.correlation_id ?? null);
    }
  });
  return all;
}

/** What tells a batch from all others. */
function nameOf(agent: string, org: string, key: string): string {
  return `${agent} ${org.length} ${org} ${key}`;
}

/** Correlations as the text of an array; null if there are none. */
export function correlationsText(values: readonly (string | null)[]): string | null {
  if (values.every((value) => value === null)) return null;
  return quotedArrayText(values);
}

/** Versions as an array; null if all are the first. */
export function versionsOf(values: readonly number[]): Buffer | null {
  return unless(1, values) && intArray(values);
}
