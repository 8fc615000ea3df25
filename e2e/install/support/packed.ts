import { mkdir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { withFileLock } from "@khala/test-support/processes/file_lock";
import { ROOT, run } from "../../../scripts/run.ts";

const DIST = join(ROOT, "dist");
/** What packages are made of. */
const SOURCES = ["packages", "apps/dashboard", "scripts", "package-lock.json"];

/** The folder of the packed packages, built unless they are newer than their sources. Test files share them. */
export async function packedPackages(): Promise<string> {
  await mkdir(join(ROOT, ".cache"), { recursive: true });
  await withFileLock(join(ROOT, ".cache/packed.lock"), { waitMs: 300_000 }, async () => {
    const built = await stat(join(DIST, "sbom.cdx.json")).catch(() => undefined);
    if (built && built.mtimeMs > (await newestSource())) return;
    const { code, output } = await run("npm", ["run", "--silent", "build"]);
    if (code !== 0) throw new Error(`npm run build failed:\n${output}`);
  });
  return DIST;
}

async function newestSource(): Promise<number> {
  const places = SOURCES.map((source) => join(ROOT, source));
  let newest = 0;
  for (let place = places.pop(); place; place = places.pop()) {
    const { mtimeMs, ...entry } = await stat(place).then((found) => ({
      mtimeMs: found.mtimeMs,
      isFolder: found.isDirectory(),
    }));
    // A build writes into the folders of packages, so their own times say nothing.
    if (!entry.isFolder) newest = Math.max(newest, mtimeMs);
    else
      for (const name of await readdir(place))
        if (!["node_modules", "dist", "node-compile-cache"].includes(name)) places.push(join(place, name));
  }
  return newest;
}
