// Runs one tier of tests: npm test, npm run test:backends, npm run test:chaos. Takes Vitest's options and file names;
// chaos also takes --minutes and --seed. The last line counts the tests.
import { randomInt } from "node:crypto";
import { join, relative } from "node:path";
import { type CliOptions, createCLI, createVitest, type TestModule, TestsNotFoundError } from "vitest/node";
import { ROOT } from "./run.ts";

/** The projects of vitest.config.ts in each tier. */
const TIERS: Readonly<Record<string, readonly string[]>> = {
  quick: ["unit", "postgres"],
  backends: ["backends", "alone", "stock", "oldest"],
  chaos: ["chaos"],
};
const SLOWEST_FILES = 10;

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

Object.assign(process.env, {
  TEST: "true",
  VITEST: "true",
  NODE_ENV: process.env.NODE_ENV ?? "test",
  // Tests start hundreds of programs from source: with it, each takes about 0.6 s of CPU less.
  NODE_COMPILE_CACHE: join(ROOT, ".cache/compile"),
});
const [tier = "", ...given] = process.argv.slice(2);
if (!TIERS[tier]) fail(`Unknown tier "${tier}". Use one of: ${Object.keys(TIERS).join(", ")}.`);
const { passed, failed, skipped } = tier === "chaos" ? await runChaos(given) : await runTier(tier, given);
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed === 0 && passed > 0 ? 0 : 1);

/** Runs rounds with ascending seeds until the minutes are over; one round unless they are given. */
async function runChaos(given: readonly string[]): Promise<Counts> {
  const numbers = { minutes: 0, seed: randomInt(2 ** 31) };
  const rest: string[] = [];
  for (let i = 0; i < given.length; i++) {
    const [, name, inline] = /^--(minutes|seed)(?:=(.*))?$/.exec(given[i]!) ?? [];
    if (!name) rest.push(given[i]!);
    else numbers[name as "minutes" | "seed"] = numberOf(`--${name}`, inline ?? given[++i]);
  }
  const deadline = Date.now() + numbers.minutes * 60_000;
  process.env.KHALA_CHAOS_MINUTES = String(numbers.minutes);
  const total: Counts = { passed: 0, failed: 0, skipped: 0 };
  for (let seed = numbers.seed; ; seed++) {
    console.log(`Chaos with --seed ${seed}`);
    process.env.KHALA_CHAOS_SEED = String(seed);
    const counts = await runTier("chaos", rest);
    for (const key of ["passed", "failed", "skipped"] as const) total[key] += counts[key];
    if (Date.now() >= deadline || counts.failed > 0) return total;
  }
}

async function runTier(tier: string, given: readonly string[]): Promise<Counts> {
  const { args, options } = parse(given);
  const vitest = await createVitest({
    project: [...TIERS[tier]!],
    ...(options as CliOptions),
    run: true,
    watch: false,
  });
  try {
    const { testModules, unhandledErrors } = await vitest.start([...args]);
    printSlowest(testModules);
    printFailed(testModules, unhandledErrors);
    return countTests(testModules, unhandledErrors.length);
  } catch (error) {
    // Vitest has printed it.
    if (error instanceof TestsNotFoundError) return { passed: 0, failed: 1, skipped: 0 };
    throw error;
  } finally {
    await vitest.close();
  }
}

function parse(given: readonly string[]) {
  const cli = createCLI();
  const parsed = cli.parse(["node", "vitest", "run", ...given], { run: false });
  // Vitest has printed its help or its version.
  if (parsed.options.help || parsed.options.version) process.exit(0);
  try {
    cli.matchedCommand?.checkUnknownOptions();
  } catch (error) {
    fail(`${(error as Error).message}. \`npm test -- --help\` lists the options.`);
  }
  return parsed;
}

function printSlowest(modules: readonly TestModule[]): void {
  const timed = modules.map((module) => {
    const { collectDuration, duration } = module.diagnostic();
    return { name: relative(ROOT, module.moduleId), ms: collectDuration + duration };
  });
  console.log("\nSlowest files:");
  for (const { name, ms } of timed.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST_FILES))
    console.log(`${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
}

/** One line for each failure, below everything else: `.ci/run` repeats them at its end. */
function printFailed(modules: readonly TestModule[], errors: readonly unknown[]): void {
  const failed = modules.filter((module) => !module.ok());
  if (failed.length + errors.length > 0) console.log("");
  for (const module of failed) {
    const file = relative(ROOT, module.moduleId);
    const names = Array.from(module.children.allTests("failed"), (test) => `: ${test.fullName}`);
    // A file that fails outside its tests has none to name.
    for (const name of names.length > 0 ? names : [""]) console.log(`FAILED ${file}${name}`);
  }
  for (const error of errors)
    console.log(`FAILED outside the tests: ${String((error as Error).message ?? error).split("\n")[0]}`);
}

function countTests(modules: readonly TestModule[], errors: number): Counts {
  const counts = { passed: 0, failed: 0, skipped: 0, pending: 0 };
  for (const module of modules) {
    const before = counts.failed;
    for (const test of module.children.allTests()) counts[test.result().state]++;
    // A file that fails outside its tests, or before they are collected, has none to count.
    if (!module.ok() && counts.failed === before) counts.failed++;
  }
  const { passed, failed, skipped, pending } = counts;
  return { passed, failed: failed + pending + errors, skipped };
}

function numberOf(option: string, value: string | undefined): number {
  if (!/^\d+(\.\d+)?$/.test(value ?? "")) fail(`${option} takes a number, not "${value ?? ""}".`);
  return Number(value);
}

function fail(message: string): never {
  console.error(message);
  process.exit(1);
}
