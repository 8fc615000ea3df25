import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { describeMachine } from "./kit/machine.ts";
import { partText } from "./kit/report.ts";
import type { Bench, PartRunner } from "./sync/bench.ts";
import { centrifugoVersion } from "./sync/centrifugo.ts";
import { fanout } from "./sync/fanout.ts";
import { latency } from "./sync/latency.ts";
import { memory } from "./sync/memory.ts";
import { startPostgres } from "./sync/postgres.ts";
import { resume } from "./sync/resume.ts";
import { versions } from "./sync/versions.ts";
import { writes } from "./sync/writes.ts";

const PARTS: Readonly<Record<string, PartRunner>> = {
  a: writes,
  b: fanout,
  c: latency,
  d: resume,
  e: memory,
};
const USAGE = `Usage: npm run bench -- sync [--only a|b|c|d|e] [--quick]

  --only   measure these parts alone, such as --only a or --only ac, and print them
  --quick  shorter and fewer runs: for a look while developing, not for results

A full run takes about ten minutes and writes bench/RESULTS.md.`;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { only: { type: "string" }, quick: { type: "boolean", default: false } },
});
const chosen = values.only?.split("") ?? Object.keys(PARTS);
if (positionals.join() !== "sync" || chosen.some((name) => !(name in PARTS))) {
  console.error(USAGE);
  process.exit(2);
}

// Whatever was started is ended by the exit handlers, which a signal alone would pass over.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

await using postgres = await startPostgres();
const centrifugo = centrifugoVersion();
const bench: Bench = {
  postgres,
  centrifugo: centrifugo !== undefined,
  rounds: values.quick ? 2 : 5,
  quick: values.quick,
};
const head = [
  "# Results of `npm run bench -- sync`",
  "",
  "Written by the program; medians of five runs, unless said otherwise, with the least and the greatest; all in one run on one machine.",
  "A rate means something only beside its latency, and a ratio more than a figure.",
  "",
  ...describeMachine().map((line) => `- ${line}`),
  `- ${versions(postgres.version, centrifugo).join(", ")}`,
  "",
].join("\n");
console.log(head);
let text = head;
for (const name of chosen) {
  const part = partText(await PARTS[name]!(bench));
  console.log(part);
  text += `\n${part}`;
}
if (!values.quick && !values.only) await writeFile(new URL("../RESULTS.md", import.meta.url), text);
