// Builds the documentation: the API reference from the sources, then all pages. A dead link fails it.
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { ensureInstalled } from "../install.ts";
import { type Finished, ROOT, run } from "../run.ts";

const SITE = join(ROOT, "site");

/** Writes the API reference to docs/api and builds the site to site/dist. */
export async function buildSite(): Promise<Finished> {
  await ensureInstalled("site");
  await rm(join(ROOT, "docs/api"), { recursive: true, force: true });
  const reference = await run(process.execPath, [join(SITE, "node_modules/typedoc/bin/typedoc")], SITE);
  if (reference.code !== 0) return reference;
  return run(process.execPath, [join(SITE, "node_modules/vitepress/bin/vitepress.js"), "build", SITE]);
}

if (import.meta.main) {
  const { code, output } = await buildSite();
  console.log(output.trimEnd());
  process.exitCode = code;
}
