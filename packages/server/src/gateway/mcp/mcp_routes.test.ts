import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const REPORT = `data:text/javascript,import { registerHooks } from "node:module";
registerHooks({ load(url, context, next) {
  if (url.includes("/@modelcontextprotocol/")) console.log(url);
  return next(url, context);
} });`;

test("a gateway without assistants does not load the SDK of MCP, which takes 13 MB", async () => {
  const gateway = join(import.meta.dirname, "../gateway.ts");
  const args = ["--conditions=khala-source", `--import=${REPORT}`, gateway];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  expect(stdout).toBe("");
});
