import { seeded } from "@khala/test-support/kit/context";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../database/database.ts";

interface Request {
  readonly stream: string;
  readonly expected: number | null;
  readonly org: string;
  readonly actor: string;
  /** The data of all its events. */
  readonly data: string;
  readonly events: readonly string[];
}

/** Calls one of the two functions. */
const append = (
  database: Database,
  name: "append_events" | "append_in_order",
  requests: readonly Request[],
) =>
  database.query({
    text: `SELECT * FROM runtime.${name}(
        ARRAY(SELECT ROW('run', r.stream, r.expected, r.org, r.actor, NULL, r.events, r.actor <> 'service')::runtime.append_request
          FROM unnest($1::text[], $2::bigint[], $3::text[], $4::int[], $5::text[]) AS r(stream, expected, org, events, actor)),
        ARRAY(SELECT ROW(e.request, e.nth, e.id, 'run.step', json_build_object('data', e.data))::runtime.append_event
          FROM unnest($6::int[], $7::int[], $8::text[], $9::text[]) AS e(request, nth, id, data))
      ) ORDER BY request`,
    values: [
      requests.map(({ stream }) => stream),
      requests.map(({ expected }) => expected),
      requests.map(({ org }) => org),
      requests.map(({ events }) => events.length),
      requests.map(({ actor }) => actor),
      requests.flatMap(({ events }, i) => events.map(() => i + 1)),
      requests.flatMap(({ events }) => events.map((_, nth) => nth + 1)),
      requests.flatMap(({ events }) => events),
      requests.flatMap(({ events, data }) => events.map(() => data)),
    ],
  });

const judged = (database: Database, requests: readonly Request[]) =>
  append(database, "append_events", requests);
const inOrder = (database: Database, requests: readonly Request[]) =>
  append(database, "append_in_order", requests);

/** Everything that is stored, but the times. */
const state = async (database: Database) => ({
  events: await database.query({
    text: `SELECT position, kind, stream_id, seq, event_id, type, data, org_id, owner, actor, trace
      FROM runtime.events ORDER BY position`,
  }),
  streams: await database.query({
    text: "SELECT kind, stream_id, seq, org_id, owner FROM runtime.event_streams ORDER BY org_id, stream_id",
  }),
  head: await database.query({ text: "SELECT position FROM runtime.event_log_head" }),
});

test.each([1, 2, 3])(
  "appending in order gives the same result as judging each request alone (seed %i)",
  async (seed) => {
    await using one = await testDatabase();
    await using other = await testDatabase();
    const random = seeded(seed);
    const below = (n: number) => Math.floor(random() * n);
    const known = new Map<string, string[]>();
    const outcomes = new Map<unknown, number>();
    let fresh = 0;
    for (let round = 0; round < 120; round++) {
      // Some rounds have nothing to refuse, as most have in life.
      const calm = below(3) === 0;
      // Two orgs use the same ids.
      const streams = new Set(
        Array.from({ length: 1 + below(5) }, () => `${below(3) > 0 ? "acme" : "globex"} run-${below(8)}`),
      );
      const requests = [...streams].map((name): Request => {
        const [org, stream] = name.split(" ") as [string, string];
        const before = known.get(name) ?? [];
        const events = Array.from({ length: 1 + below(3) }, () => `e${++fresh}`);
        const repeats = calm || before.length === 0 ? 0 : below(6);
        if (repeats === 1) events.splice(0, events.length, before[below(before.length)]!);
        if (repeats === 2) events.unshift(before[below(before.length)]!);
        const expected = below(2) === 0 ? null : before.length + (calm ? 0 : below(2));
        const actor = calm || below(8) > 0 ? ["ada", "service"][below(2)]! : "eve";
        return { stream, expected, org, actor, data: calm || below(4) > 0 ? "same" : "other", events };
      });
      const answers = await inOrder(one.database, requests);
      expect(answers).toEqual(await judged(other.database, requests));
      for (const { request, outcome } of answers) {
        outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        const { org, stream, events } = requests[(request as number) - 1]!;
        const name = `${org} ${stream}`;
        if (outcome === "appended") known.set(name, [...(known.get(name) ?? []), ...events]);
      }
    }
    expect(await state(one.database)).toEqual(await state(other.database));
    for (const outcome of ["appended", "repeated", "duplicate", "changed", "conflict", "foreign"])
      expect(outcomes.get(outcome), outcome).toBeGreaterThan(3);
  },
);
