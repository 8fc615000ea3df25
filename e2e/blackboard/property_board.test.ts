import { kafkaHere } from "@khala/testing/kafka/kafka";
import { kafkaBoard } from "@khala/testing/kafka/kafka_board";
import fc from "fast-check";
import { afterAll, beforeAll, describe, test } from "vitest";
import { type Command, histories } from "./support/board_commands.ts";
import { postgresBoard } from "./support/board_postgres.ts";
import { BoardWorld, type OpenedBoard } from "./support/board_world.ts";

// KHALA_PROPERTY_RUNS makes it search longer, KHALA_PROPERTY_SEED repeats a search.
const SEED = Number(process.env.KHALA_PROPERTY_SEED ?? Date.now() % 2 ** 31);

interface Engine {
  readonly name: string;
  /** How many histories a run can afford. */
  readonly runs: number;
  open(): Promise<OpenedBoard>;
}

const onKafka = () => kafkaBoard({ partitions: 3, retryDelaysMs: [100, 1_500, 60_000] });
const engines: Engine[] = [{ name: "Postgres", runs: 15, open: () => postgresBoard() }];
if (kafkaHere()) engines.push({ name: "Kafka", runs: 3, open: onKafka });

describe.each(engines)("on $name", ({ name, open, runs }) => {
  let under: OpenedBoard;
  beforeAll(async () => {
    under = await open();
  }, 120_000);
  afterAll(() => under?.[Symbol.asyncDispose](), 120_000);

  test("whatever is published, fails, pauses, stops and starts: each task ends once, in the order of its key", {
    timeout: 300_000,
  }, async () => {
    const numRuns = Number(process.env.KHALA_PROPERTY_RUNS ?? runs);
    console.log(`${name}: KHALA_PROPERTY_SEED=${SEED} KHALA_PROPERTY_RUNS=${numRuns}`);
    const happens = async (history: readonly Command[]) => {
      const world = await BoardWorld.open(under);
      try {
        for (const command of history) await world.run(command);
        await world.settle();
      } finally {
        await world.end();
      }
    };
    const result = await fc.check(fc.asyncProperty(histories, happens), {
      seed: SEED,
      numRuns,
      endOnFailure: process.env.KHALA_PROPERTY_SHRINK !== "1",
    });
    if (!result.failed) return;
    const [history] = result.counterexample!;
    const error = result.errorInstance as Error;
    throw new Error(`${error.message}\n${JSON.stringify(history)}`, { cause: error });
  });
});
