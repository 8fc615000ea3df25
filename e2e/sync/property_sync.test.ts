import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type History, histories } from "./support/sync_commands.ts";
import { SyncWorld } from "./support/sync_world.ts";

// KHALA_PROPERTY_RUNS makes it search longer, KHALA_PROPERTY_SEED repeats a search, KHALA_PROPERTY_SHRINK=1 looks for
// the smallest history that fails as well.
const RUNS = Number(process.env.KHALA_PROPERTY_RUNS ?? 8);
const SEED = Number(process.env.KHALA_PROPERTY_SEED ?? Date.now() % 2 ** 31);
const SHRINK = process.env.KHALA_PROPERTY_SHRINK === "1";
const SEEDS = join(import.meta.dirname, "seeds");

async function happens({ servers, commands }: History): Promise<void> {
  await using world = await SyncWorld.open(servers, SEED);
  for (const command of commands) await world.run(command);
  await world.settle();
}

/** Histories that failed once. */
const kept = readdirSync(SEEDS).filter((name) => name.endsWith(".json"));

test.for(kept)("a history that is kept holds: %s", { timeout: 120_000 }, async (name) => {
  await happens(JSON.parse(readFileSync(join(SEEDS, name), "utf8")) as History);
});

test("whatever happens, every witness ends up with what the events say and with what a list says", {
  timeout: RUNS * 60_000,
}, async () => {
  console.log(`KHALA_PROPERTY_SEED=${SEED} KHALA_PROPERTY_RUNS=${RUNS}`);
  const property = fc.asyncProperty(histories, happens);
  const result = await fc.check(property, { seed: SEED, numRuns: RUNS, endOnFailure: !SHRINK });
  if (!result.failed) return;
  const [history] = result.counterexample!;
  const file = join(SEEDS, `${SEED}.json`);
  writeFileSync(file, `${JSON.stringify(history, undefined, 2)}\n`);
  expect.fail(`${(result.errorInstance as Error)?.message}\nThe history is kept in ${file}.`);
});
