import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { must } from "../run.ts";

/** Compiles a package to its dist/: modules, their declarations, and the files that modules read beside them. */
export async function compile(folder: string): Promise<void> {
  const source = join(folder, "src");
  const dist = join(folder, "dist");
  await rm(dist, { recursive: true, force: true });
  await must("tsc", ["-p", join(folder, "tsconfig.build.json")]);
  for (const file of await filesIn(source)) {
    if (file.endsWith(".ts")) continue;
    const copy = join(dist, relative(source, file));
    await mkdir(dirname(copy), { recursive: true });
    await copyFile(file, copy);
  }
  for (const file of await filesIn(dist)) if (file.endsWith(".d.ts")) await nameModules(file);
}

/** The compiler rewrites the imports of modules but not those of declarations, where they would name what is not shipped. */
async function nameModules(declaration: string): Promise<void> {
  const text = await readFile(declaration, "utf8");
  await writeFile(declaration, text.replaceAll(/(\bfrom |\bimport\()"(\.[^"]*)\.ts"/g, '$1"$2.js"'));
}

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
}
