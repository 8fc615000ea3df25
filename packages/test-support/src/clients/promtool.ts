import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { must, run } from "../../../../scripts/run.ts";

/**
 * promtool: the one on PATH, or in CI the one of Debian's `prometheus`, unpacked into a folder and not installed, so that
 * no Prometheus is left running. Undefined on a machine without it that is not CI.
 */
export async function findPromtool(folder: string): Promise<string | undefined> {
  const found = await run("promtool", ["--version"]);
  if (found.code === 0) return "promtool";
  if (process.env.CI !== "true") return undefined;
  const download = () => run("apt-get", ["download", "prometheus"], folder);
  if ((await download()).code !== 0) {
    await must("apt-get", ["update"], folder);
    const { code, output } = await download();
    if (code !== 0) throw new Error(`Debian's package prometheus cannot be had:\n${output}`);
  }
  const archive = (await readdir(folder)).find((name) => name.endsWith(".deb"));
  if (!archive) throw new Error("apt-get download left no package behind.");
  await must("dpkg-deb", ["-x", archive, "."], folder);
  return join(folder, "usr/bin/promtool");
}
