#!/usr/bin/env node
import { relative } from "node:path";
import { parseArgs } from "node:util";
import { createApp, NotPossible, TEMPLATES } from "./create_app.ts";
import { nodeTooOld } from "./node_version.ts";

const HELP = `Usage: npm create khala <folder> -- [options]

Makes a new app on Khala in <folder>: a React page, a model, an agent, an engine, and a test of each.

Options:
  --template <name>    vite (the default) or next
  --packages <folder>  packed Khala packages (\`npm run build\` makes them) to use instead of the registry's
  -h, --help           print this`;

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      template: { type: "string", default: "vite" },
      packages: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
  const [folder] = positionals;
  if (values.help) console.log(HELP);
  else if (folder === undefined || positionals.length > 1) fail(HELP);
  else {
    const { packages } = values;
    const template = TEMPLATES.find((name) => name === values.template);
    if (!template)
      throw new NotPossible(`There is no template "${values.template}". Templates: ${TEMPLATES.join(", ")}.`);
    const created = await createApp({ folder, template, ...(packages !== undefined && { packages }) });
    const place = relative("", created.folder);
    console.log(`${created.name} is in ${created.folder}: ${created.files.join(", ")}\n\nNow run it:`);
    if (place) console.log(`  cd ${place}`);
    console.log("  npm install\n  npm run dev\n\nREADME.md has the next steps.");
    const tooOld = nodeTooOld(process.versions.node);
    if (tooOld) console.log(`\n${tooOld}`);
  }
} catch (error) {
  const usage = error instanceof TypeError && "code" in error;
  if (!usage && !(error instanceof NotPossible)) throw error;
  fail(`create-khala: ${(error as Error).message}`);
}

function fail(text: string): void {
  console.error(text);
  process.exitCode = 2;
}
