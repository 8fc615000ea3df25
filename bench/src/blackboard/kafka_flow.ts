import { watchOtherLoad } from "../kit/proc.ts";
import { mostStolen } from "../kit/quiet.ts";
import { figure } from "../kit/report.ts";
import { type Bench, type BoardStore, CALL, CONCURRENCY, PARTITIONS, type PartRunner } from "./bench.ts";
import { type Flow, openFlow } from "./flow.ts";
import { measureInTurns, medianRate, medianRatio, STEADY_HEAD, steadyCells, turnsOf } from "./rates.ts";

/** A broker that has just been started compiles itself for more than a minute, at the expense of all others. */
const WARM_UP_MS = 30_000;

/** (a) From publish to settled on Kafka, beside a loop that does nothing else. */
export const kafkaFlow: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  await using bare = await flowOf(bench, "bare_kafka", "a1.", true);
  await using khala = await flowOf(bench, "khala", "a2.", true);
  await using plain = await flowOf(bench, "khala", "a3.", false);
  for (const flow of bench.quick ? [] : [bare, khala, plain]) {
    await flow.flow(WARM_UP_MS);
    await flow.rest();
  }
  const windows = await measureInTurns(bench, { bare, khala, plain });
  const row = (title: string, name: "bare" | "khala" | "plain", hops: number) => [
    title,
    ...steadyCells(turnsOf(windows, name)),
    String(hops),
    figure(medianRate(turnsOf(windows, name)) * hops),
  ];
  return {
    title: "(a) Kafka: publish → route → run → settle",
    how: [
      `a publisher with ${CALL.atOnce} calls of ${CALL.size} artifacts under way and a worker, both processes; up to 5,000 wait at any time, fewer where the worker is the faster of the two; ${PARTITIONS} partitions, records of 450 bytes, one broker`,
      `Khala: two servers without their gateways; both route, and one works with an agent that does nothing (concurrency ${CONCURRENCY}); per artifact four records (the artifact, its index, the task, the mark that it was settled) and two offsets, and both servers read the index`,
      "the bare loop: reads what the publisher writes and writes it to another topic, with the client, the producers, the groups of calls and the batches (up to 500) of the board, and its transactions: what it wrote and its offset in one",
      `the broker is warm: each of the three has worked for ${WARM_UP_MS / 1_000} s before`,
      "the three take turns of four seconds, each while the others rest; a ratio is the median of those of each round",
      "a task takes two hops through Kafka, artifact → task → settled, where the loop takes one: Khala's tasks are compared with half of the loop's records",
    ],
    tables: [
      {
        head: ["", ...STEADY_HEAD, "hops", "per second and hop"],
        rows: [
          row("the bare loop, transactions", "bare", 1),
          row("Khala, transactions", "khala", 2),
          row("Khala, no transactions", "plain", 2),
        ],
      },
    ],
    bars: [
      {
        name: "tasks/s, Khala ÷ half of the bare loop's records/s",
        got: medianRatio(windows, (turns) => turns.khala.rate / (turns.bare.rate / 2)),
        least: 0.6,
      },
      {
        name: "time per task, transactions ÷ none",
        got: medianRatio(windows, (turns) => turns.plain.rate / turns.khala.rate),
        most: 1.4,
      },
    ],
    otherLoad: otherLoad(),
    stolen: mostStolen(windows),
  };
};

async function flowOf(
  bench: Bench,
  name: "khala" | "bare_kafka",
  prefix: string,
  transactions: boolean,
): Promise<Flow> {
  const kafka = { bootstrap: bench.kafka!, prefix, transactions };
  if (name === "bare_kafka") return await openFlow(bench, name, kafka);
  const store: BoardStore = { url: await bench.postgres.create("khala"), kafka };
  return await openFlow(bench, name, store);
}
