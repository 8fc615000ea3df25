import fc from "fast-check";
import { afterAll, beforeAll, test } from "vitest";
import { type History, histories } from "./support/client_commands.ts";
import { ClientStage, ClientWorld } from "./support/client_world.ts";

// KHALA_PROPERTY_RUNS makes it search longer, KHALA_PROPERTY_SEED repeats a search.
const RUNS = Number(process.env.KHALA_PROPERTY_RUNS ?? 15);
const SEED = Number(process.env.KHALA_PROPERTY_SEED ?? Date.now() % 2 ** 31);

let stage: ClientStage;
beforeAll(async () => {
  stage = await ClientStage.open();
});
afterAll(() => stage?.[Symbol.asyncDispose]());

async function happens({ anchored, commands }: History): Promise<void> {
  await using world = await ClientWorld.open(stage, anchored);
  for (const command of commands) await world.run(command);
  await world.settle();
}

/** Histories that a search seldom finds. */
const KEPT: readonly (History & { readonly name: string })[] = [
  {
    name: "what could not be stored is not missing after a restart",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fault: "quota" },
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "storage", fault: "none" },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "what was too large and not fetched is fetched after a restart",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "write_large", key: 0 },
      { do: "refuse" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "a purged position is listed anew after a restart, also when a document went meanwhile",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "write", key: 1 },
      { do: "breathe" },
      { do: "refuse" },
      { do: "delete", key: 0 },
      { do: "trim" },
      { do: "reopen", client: 0 },
      { do: "reopen", client: 2 },
    ],
  },
  {
    name: "the tab that leads dies while the line is dead, and what it stored is broken",
    anchored: true,
    commands: [
      { do: "write", key: 0 },
      { do: "breathe" },
      { do: "half_open" },
      { do: "write", key: 0 },
      { do: "corrupt", which: 1 },
      { do: "kill", client: 0 },
      { do: "restart_server" },
      { do: "write", key: 1 },
    ],
  },
];

test.for(KEPT)("$name", { timeout: 120_000 }, (history) => happens(history));

test("whatever happens to the line, the server, the storage, the clock and the tabs, clients end up with what the server has, and never go back", {
  timeout: RUNS * 120_000,
}, async () => {
  console.log(`KHALA_PROPERTY_SEED=${SEED} KHALA_PROPERTY_RUNS=${RUNS}`);
  await fc.assert(fc.asyncProperty(histories, happens), { seed: SEED, numRuns: RUNS, endOnFailure: true });
});
