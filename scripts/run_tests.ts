// npm test: all tests, by Vitest, whose options and file names it takes. A file that fails while the host of a virtual
// machine takes much of it is run again, alone, and the end of the output says so. The last line counts the tests.
import { relative } from "node:path";
import { type CliOptions, createCLI, createVitest, type TestModule, TestsNotFoundError } from "vitest/node";
import { StolenTime } from "../e2e/support/stolen_time.ts";
import { ROOT } from "./run.ts";
import { type Ran, runAgain } from "./second_run.ts";

const SAMPLE_MS = 1_000;
/** A run that is slower than this gets no second chances: who waits for it would give up first. */
const SECOND_RUNS_UNTIL_MS = 70 * 60_000;

const cli = createCLI();
const { args, options } = parse();
Object.assign(process.env, { TEST: "true", VITEST: "true", NODE_ENV: process.env.NODE_ENV ?? "test" });

const startedAt = Date.now();
const stolen = new StolenTime();
const sample = () => {
  const now = Date.now();
  stolen.sample(now);
  return now;
};
sample();
const sampling = setInterval(sample, SAMPLE_MS);

/** Two projects may have a file of one path. */
const nameOf = (module: TestModule) => `${module.project.name} ${relative(ROOT, module.moduleId)}`;
const times = new Map<string, { begun: number; ended?: number }>();
const clockOf = {
  onTestModuleQueued: (module: TestModule) => void times.set(nameOf(module), { begun: sample() }),
  onTestModuleEnd: (module: TestModule) => {
    const time = times.get(nameOf(module));
    if (time) time.ended = sample();
  },
};
const ran = (module: TestModule): Ran => {
  const { begun, ended } = times.get(nameOf(module)) ?? { begun: startedAt };
  return { failed: !module.ok(), stolen: stolen.share(begun, ended ?? Date.now()) };
};

const vitest = await createVitest({
  ...(options as CliOptions),
  run: true,
  watch: false,
  reporters: [...[options.reporters ?? "default"].flat(), clockOf],
});
const moduleOf = (name: string) => vitest.state.getTestModules().find((module) => nameOf(module) === name)!;
let succeeded = false;
try {
  const { testModules, unhandledErrors } = await vitest.start([...args]);
  const broken = new Map(
    testModules.filter((module) => !module.ok()).map((module) => [nameOf(module), ran(module)]),
  );
  const mended = await runAgain(broken, {
    async again(name) {
      console.log(`\nAgain and alone, as the host took ${percent(ran(moduleOf(name)).stolen)}: ${name}`);
      const result = await vitest.runTestSpecifications([moduleOf(name).toTestSpecification()]);
      unhandledErrors.push(...result.unhandledErrors);
      return ran(moduleOf(name));
    },
    inTime: () => Date.now() - startedAt < SECOND_RUNS_UNTIL_MS,
  });
  const total = stolen.share(startedAt, Date.now());
  if (total >= 0.01) console.log(`The host of this machine took ${percent(total)} of it during this run.`);
  for (const name of mended)
    console.log(`FAILED ONCE, while it took ${percent(broken.get(name)!.stolen)}, and passed alone: ${name}`);
  succeeded = report(unhandledErrors.length);
} catch (error) {
  // Vitest has said so.
  if (!(error instanceof TestsNotFoundError)) throw error;
} finally {
  clearInterval(sampling);
  await vitest.close();
}
process.exit(succeeded ? 0 : 1);

/** Help and a version end the program once they are printed, as does an option that Vitest does not have. */
function parse() {
  const parsed = cli.parse(["node", "vitest", "run", ...process.argv.slice(2)], { run: false });
  if (parsed.options.help || parsed.options.version) process.exit(0);
  try {
    cli.matchedCommand?.checkUnknownOptions();
  } catch (error) {
    console.error(`${(error as Error).message}. \`npm test -- --help\` lists the options.`);
    process.exit(1);
  }
  return parsed;
}

/** Prints the last line; answers whether all is well. */
function report(errors: number): boolean {
  const counts = { passed: 0, failed: 0, skipped: 0, pending: 0 };
  for (const module of vitest.state.getTestModules()) {
    const before = counts.failed;
    for (const test of module.children.allTests()) counts[test.result().state]++;
    // One that fails outside its tests, or before they are known, has none to count.
    if (!module.ok() && counts.failed === before) counts.failed++;
  }
  const failed = counts.failed + counts.pending + errors;
  console.log(`${counts.passed} passed, ${failed} failed, ${counts.skipped} skipped`);
  return failed === 0 && counts.passed > 0;
}

function percent(share: number): string {
  return `${Math.round(100 * share)} %`;
}
