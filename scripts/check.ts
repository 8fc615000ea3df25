// npm run check: what a reviewer would ask. Every step runs, also after one has failed.
import { availableParallelism } from "node:os";
import { buildSite } from "./build_site.ts";
import { checkClientSize } from "./client_size.ts";
import { checkBreaking, checkGenerated } from "./proto.ts";
import { type Finished, ROOT, run } from "./run.ts";

interface Step {
  readonly name: string;
  readonly run: () => Promise<Finished>;
  /** What to do when it fails. */
  readonly advice: string;
}

const STEPS: readonly Step[] = [
  {
    name: "proto lint",
    run: () => run("buf", ["lint"], `${ROOT}/proto`),
    advice: "Mend the .proto files named above.",
  },
  {
    name: "proto breaking",
    run: checkBreaking,
    advice:
      "Programs in use would misread this. Add fields with new numbers instead, and reserve those of removed ones.",
  },
  {
    name: "generated code",
    run: checkGenerated,
    advice: "Run `npm run generate` and commit what it changes.",
  },
  {
    name: "format, lint, imports",
    run: () => run("biome", ["check", "--error-on-warnings", "."]),
    advice: "`npm run format` mends most of it. CONTRIBUTING.md says who may import whom.",
  },
  {
    name: "dead code",
    run: () => run("knip", ["--no-progress"]),
    advice: "Remove what nothing uses, or list an entry that is used from outside in knip.json.",
  },
  { name: "types", run: () => run("tsc", ["--noEmit", "-p", "."]), advice: "Mend the types named above." },
  {
    name: "types of the page",
    run: () => run("tsc", ["--noEmit", "-p", "apps/dashboard"]),
    advice: "Mend the types named above.",
  },
  {
    name: "size of the client",
    run: checkClientSize,
    advice: "@khala/client/sync promises to stay small: see what it imports that it did not before.",
  },
  {
    name: "documentation",
    run: buildSite,
    advice: "Mend the dead link, or the doc comment, named above.",
  },
  {
    name: "unit tests",
    run: () => run("node", ["scripts/run_tests.ts", "quick", "--project=unit", "--reporter=dot"]),
    advice: "`npx vitest --project=unit` runs them again as you edit.",
  },
];

/** Runs steps side by side, as many as there are cores, and prints each in its turn. */
async function runAll(steps: readonly Step[]): Promise<string[]> {
  const failed: string[] = [];
  const waiting = [...steps];
  const results = new Map<Step, PromiseWithResolvers<{ finished: Finished; seconds: number }>>();
  for (const step of steps) results.set(step, Promise.withResolvers());
  const worker = async () => {
    for (let step = waiting.shift(); step; step = waiting.shift()) {
      const began = performance.now();
      const finished = await step.run().catch((error: Error) => ({ code: 1, output: error.message }));
      results.get(step)!.resolve({ finished, seconds: (performance.now() - began) / 1000 });
    }
  };
  const workers = Array.from({ length: availableParallelism() }, worker);
  for (const [step, result] of results) {
    const { finished, seconds } = await result.promise;
    const ok = finished.code === 0;
    if (!ok) failed.push(step.name);
    console.log(`${ok ? "✓" : "✗"} ${step.name.padEnd(22)} ${seconds.toFixed(1)} s`);
    if (!ok) console.log(`\n${finished.output.trimEnd()}\n→ ${step.advice}\n`);
    else if (finished.output.startsWith("NOT CHECKED")) console.log(`  ${finished.output}`);
  }
  await Promise.all(workers);
  return failed;
}

const failed = await runAll(STEPS);
if (failed.length > 0) {
  console.log(`\n${failed.length} of ${STEPS.length} checks failed: ${failed.join(", ")}.`);
  process.exitCode = 1;
} else {
  console.log(`\nAll ${STEPS.length} checks passed.`);
}
