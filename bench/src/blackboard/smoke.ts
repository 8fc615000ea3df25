import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { type BoardStore, PARTITIONS, type PartRunner, program } from "./bench.ts";
import type { Smoke, SmokeProgram } from "./programs/smoke.ts";

/** (e) The seed's smoke: makespan and latency of many artifacts at once. */
export const smoke: PartRunner = async ({ postgres, kafka, rounds, quick }) => {
  const otherLoad = watchOtherLoad();
  const count = quick ? 2_000 : 50_000;
  const place = (round: number) =>
    kafka && { kafka: { bootstrap: kafka, prefix: `e${round}.`, transactions: true } };
  const systems: { title: string; store?: (round: number) => Promise<BoardStore> }[] = [
    { title: "in memory" },
    { title: "PostgreSQL", store: async () => ({ url: await postgres.create("khala") }) },
    ...(kafka
      ? [
          {
            title: "Kafka",
            store: async (round: number) => ({ url: await postgres.create("khala"), ...place(round) }),
          },
        ]
      : []),
  ];
  const runs = systems.map((): Smoke[] => []);
  for (let round = 0; round < rounds; round++) {
    for (const [i, { store }] of systems.entries()) {
      await using server = startProgram<SmokeProgram>(program("smoke"));
      await postgres.checkpoint();
      if (store) await server.call("open", await store(round));
      const measure = store ? "board" : "ideal";
      // What the first ones pay for compiling is nobody's.
      await server.call(measure, { count: count / 10 });
      runs[i]!.push(await server.call(measure, { count }));
    }
  }
  const median = (i: number, what: keyof Smoke) => spread(runs[i]!.map((run) => run[what])).median;
  return {
    title: `(e) ${figure(count)} artifacts at once, ${PARTITIONS} partitions`,
    how: [
      "one server without its gateway publishes as fast as its board takes it, four calls of 100 at a time, routes and works with an agent that does nothing; after a warm-up with a tenth of it",
      "latency: from the call that publishes to settled, the wait behind all the others included; makespan: from the first call to the last settlement",
      "in memory: the same agent, called from a list of ids with the artifacts in a map; nothing is checked, routed, durable, retried or counted",
      ...(kafka ? [] : ["Kafka: SKIPPED, there is none on this machine"]),
    ],
    tables: [
      {
        head: ["", "makespan ms", "artifacts/s", "p50 ms", "p95 ms", "makespan ÷ in memory"],
        rows: systems.map(({ title }, i) => [
          title,
          range(spread(runs[i]!.map(({ makespan }) => makespan))),
          figure((count / median(i, "makespan")) * 1_000),
          range(spread(runs[i]!.map(({ p50 }) => p50))),
          range(spread(runs[i]!.map(({ p95 }) => p95))),
          figure(median(i, "makespan") / median(0, "makespan")),
        ]),
      },
    ],
    bars: [],
    otherLoad: otherLoad(),
  };
};
