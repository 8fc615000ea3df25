import { watchOtherLoad } from "../kit/proc.ts";
import { mostStolen, type Window } from "../kit/quiet.ts";
import { figure } from "../kit/report.ts";
import { type Bench, type BoardStore, CALL, CONCURRENCY, PARTITIONS, type PartRunner } from "./bench.ts";
import { measureSteady, medianRate, STEADY_HEAD, type Steady, steadyCells } from "./rates.ts";

/** (a) From publish to settled on Kafka, beside a loop that does nothing else. */
export const kafkaFlow: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const bare = await ratesOf(bench, "bare_kafka", "a1.", true);
  const khala = await ratesOf(bench, "khala", "a2.", true);
  const plain = await ratesOf(bench, "khala", "a3.", false);
  // Before and after, so that a machine that becomes slower or faster meanwhile favours nobody.
  bare.push(...(await ratesOf(bench, "bare_kafka", "a4.", true)));
  const row = (title: string, windows: readonly Window<Steady>[], hops: number) => [
    title,
    ...steadyCells(windows),
    String(hops),
    figure(medianRate(windows) * hops),
  ];
  return {
    title: "(a) Kafka: publish → route → run → settle",
    how: [
      `a publisher with ${CALL.atOnce} calls of ${CALL.size} artifacts under way and a worker, both processes; at any time 5,000 wait; ${PARTITIONS} partitions, records of 450 bytes, one broker`,
      `Khala: two servers without their gateways; both route, and one works with an agent that does nothing (concurrency ${CONCURRENCY}); per artifact four records (the artifact, its index, the task, the mark that it was settled) and two offsets, and both servers read the index`,
      "the bare loop: reads what the publisher writes and writes it to another topic, with the client, the producers, the groups of calls and the batches (up to 500) of the board, and its transactions: what it wrote and its offset in one; measured before and after Khala",
      "a task takes two hops through Kafka, artifact → task → settled, where the loop takes one: Khala's tasks are compared with half of the loop's records",
    ],
    tables: [
      {
        head: ["", ...STEADY_HEAD, "hops", "per second and hop"],
        rows: [
          row("the bare loop, transactions", bare, 1),
          row("Khala, transactions", khala, 2),
          row("Khala, no transactions", plain, 2),
        ],
      },
    ],
    bars: [
      {
        name: "tasks/s, Khala ÷ half of the bare loop's records/s",
        got: medianRate(khala) / (medianRate(bare) / 2),
        least: 0.6,
      },
      { name: "time per task, transactions ÷ none", got: medianRate(plain) / medianRate(khala), most: 1.4 },
    ],
    otherLoad: otherLoad(),
    stolen: mostStolen(bare, khala, plain),
  };
};

async function ratesOf(
  bench: Bench,
  name: "khala" | "bare_kafka",
  prefix: string,
  transactions: boolean,
): Promise<Window<Steady>[]> {
  const kafka = { bootstrap: bench.kafka!, prefix, transactions };
  if (name === "bare_kafka") return await measureSteady(bench, name, kafka);
  const store: BoardStore = { url: await bench.postgres.create("khala"), kafka };
  return await measureSteady(bench, name, store);
}
