import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { expect, test } from "vitest";

/** Puts a command in place of ours that is signalled, and never loads. */
const NEVER_LOADS = `data:text/javascript,import { registerHooks } from "node:module";
const source = "process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 60_000); await new Promise(() => {});";
registerHooks({ load: (url, context, next) =>
  url.endsWith("/program.ts") ? { format: "module", source, shortCircuit: true } : next(url, context) });`;

test("handles a signal that arrives while it loads: as process 1 of a container nothing else would end it", async () => {
  const main = join(import.meta.dirname, "main.ts");
  const khala = spawn(process.execPath, [`--import=${NEVER_LOADS}`, main, "serve"], { stdio: "ignore" });
  const [code, signal] = await once(khala, "exit");
  expect({ code, signal }).toEqual({ code: 143, signal: null });
});
