import { writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { ensureInstalled } from "../../scripts/install.ts";
import { blackboardPlane } from "./blackboard/plane.ts";
import { conversationPlane } from "./conversations/plane.ts";
import { describeMachine } from "./kit/machine.ts";
import type { Plane } from "./kit/plane.ts";
import { partText } from "./kit/report.ts";
import { stockPlane } from "./stock/plane.ts";
import { syncPlane } from "./sync/plane.ts";

const PLANES: Readonly<Record<string, Plane>> = {
  sync: syncPlane,
  conversations: conversationPlane,
  blackboard: blackboardPlane,
  stock: stockPlane,
};
const USAGE = `Usage: npm run bench -- sync|conversations|blackboard|stock [--only a|b|c|d|e|f|g|h] [--quick]

  --only   measure these parts alone, such as --only a or --only ac, and print them
  --quick  shorter and fewer runs: for a look while developing, not for results. Part f of the blackboard takes four minutes then

A full run takes ten to fifteen minutes, that of the blackboard up to thirty, and writes ${Object.values(
  PLANES,
)
  .flatMap(({ results }) => (results ? [`bench/${results}`] : []))
  .join(
    " or ",
  )}. That of stock takes two minutes, and compares the system's PostgreSQL with the embedded one.`;

const { positionals, values } = readArguments();
if (values.help) {
  console.log(USAGE);
  process.exit(0);
}
const [name = ""] = positionals;
const plane = positionals.length === 1 && Object.hasOwn(PLANES, name) ? PLANES[name] : undefined;
const chosen = values.only?.split("") ?? plane?.parts ?? [];
if (!plane || chosen.some((part) => !plane.parts.includes(part))) {
  console.error(USAGE);
  process.exit(2);
}

// Whatever was started is ended by the exit handlers, which a signal alone would pass over.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

await ensureInstalled("bench/peers");
await using stack = new AsyncDisposableStack();
const { versions, measure } = await plane.open(
  { rounds: values.quick ? 2 : 5, quick: values.quick },
  stack,
  chosen,
);
const head = [
  `# Results of \`npm run bench -- ${name}\``,
  "",
  "Written by the program; medians of five runs, unless said otherwise, with the least and the greatest; all in one run on one machine.",
  "A rate means something only beside its latency, and a ratio more than a figure.",
  "",
  ...describeMachine().map((line) => `- ${line}`),
  `- ${versions.join(", ")}`,
  "",
].join("\n");
console.log(head);
let text = head;
for (const part of chosen) {
  const measured = partText(await measure(part));
  console.log(measured);
  text += `\n${measured}`;
}
if (plane.results && !values.quick && !values.only)
  await writeFile(new URL(`../${plane.results}`, import.meta.url), text);

function readArguments() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        only: { type: "string" },
        quick: { type: "boolean", default: false },
        help: { type: "boolean", short: "h", default: false },
      },
    });
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    process.exit(2);
  }
}
