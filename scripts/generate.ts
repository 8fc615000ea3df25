// npm run generate: writes packages/contracts/src/gen from proto/.
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { runTool } from "./install.ts";
import { ROOT } from "./run.ts";

await rm(join(ROOT, "packages/contracts/src/gen"), { recursive: true, force: true });
const { code, output } = await runTool("buf", ["generate"], join(ROOT, "proto"));
if (code !== 0) console.error(output.trimEnd());
process.exitCode = code;
