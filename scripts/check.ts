// npm run check: what a reviewer would ask, but for the tests. Every step runs, also after one has failed.
// `npm run check -- types dead` runs the steps whose names contain one of these words.
import { availableParallelism } from "node:os";
import { checkClientSize } from "./checks/client_size.ts";
import { checkMigrations } from "./checks/migrations.ts";
import { checkBreaking, checkGenerated } from "./checks/proto.ts";
import { checkTypes } from "./checks/types.ts";
import { runTool } from "./install.ts";
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
    run: () => runTool("buf", ["lint"], `${ROOT}/proto`),
    advice: "Fix the .proto files named above.",
  },
  {
    name: "proto breaking",
    run: checkBreaking,
    advice:
      "Programs in use would misread this. Add fields with new numbers instead, and reserve those of removed ones.",
  },
  {
    name: "migrations",
    run: checkMigrations,
    advice:
      "Servers of the last release share the database during an upgrade. See ADR-0070: expand, then contract.",
  },
  {
    name: "generated code",
    run: checkGenerated,
    advice: "Run `npm run generate` and commit what it changes.",
  },
  {
    name: "format, lint, imports",
    run: () => runTool("biome", ["check", "--error-on-warnings", "."]),
    advice: "`npm run format` fixes most of it. CONTRIBUTING.md says who may import whom.",
  },
  {
    name: "dead code",
    run: () => runTool("knip", ["--no-progress"]),
    advice: "Remove what nothing uses, or list an entry that is used from outside in knip.json.",
  },
  {
    name: "types, docs too",
    run: checkTypes,
    advice: "Fix the types named above; .cache/docs-types/… is named after the page and the line.",
  },
  {
    name: "types of the page",
    run: () => run("tsc", ["--noEmit", "-p", "apps/dashboard"]),
    advice: "Fix the types named above.",
  },
  {
    name: "size of the client",
    run: checkClientSize,
    advice: "@khala/client/sync promises to stay small: see what it imports that it did not before.",
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

const words = process.argv.slice(2);
const chosen = STEPS.filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)));
if (chosen.length === 0) {
  console.error(`No check is named so. There are: ${STEPS.map(({ name }) => name).join("; ")}.`);
  process.exit(1);
}
const failed = await runAll(chosen);
if (failed.length > 0) {
  console.log(`\n${failed.length} of ${chosen.length} checks failed: ${failed.join(", ")}.`);
  process.exitCode = 1;
} else {
  console.log(`\nAll ${chosen.length} checks passed.`);
}
