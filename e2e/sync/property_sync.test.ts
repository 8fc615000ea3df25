import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "vitest";
import type { History } from "./support/sync_commands.ts";
import { checkHistory, checkSync } from "./support/sync_property.ts";

const SEEDS = join(import.meta.dirname, "seeds");
/** Histories that failed once. */
const files = readdirSync(SEEDS).filter((name) => name.endsWith(".json"));

test.for(files)("regression: %s", async (name) => {
  await checkHistory(JSON.parse(readFileSync(join(SEEDS, name), "utf8")) as History, 1);
});

test("every witness has what the events and a list say, after any history", () => checkSync());
