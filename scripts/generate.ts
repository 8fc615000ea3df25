// npm run generate: writes packages/contracts/src/gen from proto/.
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { must, ROOT } from "./run.ts";

await rm(join(ROOT, "packages/contracts/src/gen"), { recursive: true, force: true });
await must("buf", ["generate"], join(ROOT, "proto"));
