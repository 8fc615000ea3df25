// Runs one tier of tests: npm test, npm run test:backends, npm run test:chaos. Takes Vitest's options and file names.
// The last line counts the tests.
import { relative } from "node:path";
import { type CliOptions, createCLI, createVitest, type TestModule, TestsNotFoundError } from "vitest/node";
import { ROOT } from "./run.ts";

/** The projects of vitest.config.ts in each tier. */
const TIERS: Readonly<Record<string, readonly string[]>> = {
  quick: ["unit", "postgres"],
  backends: ["backends"],
  chaos: ["chaos"],
};
const SLOWEST_FILES = 10;

const [tier = "", ...rest] = process.argv.slice(2);
const projects = TIERS[tier];
if (!projects) {
  console.error(`Unknown tier "${tier}". Use one of: ${Object.keys(TIERS).join(", ")}.`);
  process.exit(1);
}
const { args, options } = parse(tier === "chaos" ? takeChaosOptions(rest) : rest);
Object.assign(process.env, { TEST: "true", VITEST: "true", NODE_ENV: process.env.NODE_ENV ?? "test" });

const vitest = await createVitest({
  project: [...projects],
  ...(options as CliOptions),
  run: true,
  watch: false,
});
let succeeded = false;
try {
  const { testModules, unhandledErrors } = await vitest.start([...args]);
  printSlowest(testModules);
  succeeded = report(testModules, unhandledErrors.length);
} catch (error) {
  // Vitest has printed it.
  if (!(error instanceof TestsNotFoundError)) throw error;
} finally {
  await vitest.close();
}
process.exit(succeeded ? 0 : 1);

/** Takes `--minutes` and `--seed` out of the arguments and passes them on as the environment of the chaos tests. */
function takeChaosOptions(given: readonly string[]): string[] {
  const left: string[] = [];
  for (let i = 0; i < given.length; i++) {
    const match = /^--(minutes|seed)(?:=(.*))?$/.exec(given[i]!);
    if (!match) {
      left.push(given[i]!);
      continue;
    }
    const value = match[2] ?? given[++i] ?? "";
    if (!/^\d+(\.\d+)?$/.test(value)) {
      console.error(`--${match[1]} takes a number, not "${value}".`);
      process.exit(1);
    }
    process.env[`KHALA_CHAOS_${match[1]!.toUpperCase()}`] = value;
  }
  return left;
}

function parse(given: readonly string[]) {
  const cli = createCLI();
  const parsed = cli.parse(["node", "vitest", "run", ...given], { run: false });
  // Vitest has printed its help or its version.
  if (parsed.options.help || parsed.options.version) process.exit(0);
  try {
    cli.matchedCommand?.checkUnknownOptions();
  } catch (error) {
    console.error(`${(error as Error).message}. \`npm test -- --help\` lists the options.`);
    process.exit(1);
  }
  return parsed;
}

function printSlowest(modules: readonly TestModule[]): void {
  const timed = modules.map((module) => {
    const { collectDuration, duration } = module.diagnostic();
    return { name: relative(ROOT, module.moduleId), ms: collectDuration + duration };
  });
  const slowest = timed.toSorted((a, b) => b.ms - a.ms).slice(0, SLOWEST_FILES);
  console.log("\nSlowest files:");
  for (const { name, ms } of slowest) console.log(`${(ms / 1000).toFixed(1).padStart(7)} s  ${name}`);
}

/** Prints the last line, and returns whether every test passed. */
function report(modules: readonly TestModule[], errors: number): boolean {
  const counts = { passed: 0, failed: 0, skipped: 0, pending: 0 };
  for (const module of modules) {
    const before = counts.failed;
    for (const test of module.children.allTests()) counts[test.result().state]++;
    // A file that fails outside its tests, or before they are collected, has none to count.
    if (!module.ok() && counts.failed === before) counts.failed++;
  }
  const failed = counts.failed + counts.pending + errors;
  console.log(`${counts.passed} passed, ${failed} failed, ${counts.skipped} skipped`);
  return failed === 0 && counts.passed > 0;
}
