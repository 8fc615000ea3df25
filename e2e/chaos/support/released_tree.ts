import { mkdir, mkdtemp, readdir, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { must, ROOT, run } from "../../../scripts/run.ts";

/** The newest release that this tree follows, as a tag; undefined before the first. */
export async function newestRelease(): Promise<string | undefined> {
  const { code, output } = await run("git", ["describe", "--tags", "--abbrev=0", "--match", "v*"]);
  return code === 0 ? output.trim() : undefined;
}

/** A folder with the source of a commit, which runs with the packages that are installed here. Disposing of it removes it. */
export async function checkOut(commit: string): Promise<AsyncDisposable & { readonly folder: string }> {
  const folder = await mkdtemp(join(tmpdir(), "khala-release-"));
  const archive = join(folder, "source.tar");
  await must("git", ["archive", "--output", archive, commit, "package.json", "packages"]);
  await must("tar", ["-xf", archive, "-C", folder]);
  const modules = join(folder, "node_modules");
  await mkdir(join(modules, "@khala"), { recursive: true });
  for (const name of await readdir(join(ROOT, "node_modules")))
    if (name !== "@khala") await symlink(join(ROOT, "node_modules", name), join(modules, name));
  // Its own packages are those of the commit.
  for (const name of await readdir(join(folder, "packages"))) {
    await symlink(join(folder, "packages", name), join(modules, "@khala", name));
    const nested = join(ROOT, "packages", name, "node_modules");
    await symlink(nested, join(folder, "packages", name, "node_modules"));
  }
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }) };
}
