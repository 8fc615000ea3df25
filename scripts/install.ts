import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { withFileLock } from "../packages/test-support/src/processes/file_lock.ts";
import { type Finished, must, ROOT, run } from "./run.ts";

/** The folders with a lock of their own, for commands that few people run. The root install stays small without them. */
export type Install =
  | "bench/peers"
  | "e2e/peers"
  | "site"
  | "tools/check"
  | "tools/postgres14"
  | "tools/release";

const WAIT_MS = 600_000;

/** Runs `npm ci` in such a folder, unless that was done for its present lock. */
export async function ensureInstalled(folder: Install): Promise<void> {
  const path = join(ROOT, folder);
  const lock = await readFile(join(path, "package-lock.json"));
  const wanted = createHash("sha256").update(lock).digest("hex");
  const mark = join(path, "node_modules/.khala-lock");
  const isInstalled = async () => (await readFile(mark, "utf8").catch(() => "")) === wanted;
  if (await isInstalled()) return;
  const turn = join(ROOT, `node_modules/.installing-${folder.replace("/", "-")}`);
  await withFileLock(turn, { waitMs: WAIT_MS }, async () => {
    if (await isInstalled()) return;
    console.error(`Installing ${folder}/package-lock.json, once: the root install does without it.`);
    await must("npm", ["ci"], path);
    await writeFile(mark, wanted);
  });
}

/** Runs a program of tools/check, which finds its plugins there too. */
export async function runTool(
  name: "biome" | "buf" | "knip",
  args: readonly string[],
  cwd = ROOT,
): Promise<Finished> {
  await ensureInstalled("tools/check");
  const bin = join(ROOT, "tools/check/node_modules/.bin");
  const env = { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` };
  return run(join(bin, name), args, cwd, { env });
}
