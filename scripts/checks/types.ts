import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { blocksOf, docFiles } from "../doc_blocks.ts";
import { type Finished, ROOT, run } from "../run.ts";

/** Where the programs of the docs are written, so that they find the repository's packages. */
const FOLDER = join(ROOT, ".cache/docs-types");

/** Checks the types of the sources and of the TypeScript in the docs, in one run: both need those of the whole server. */
export async function checkTypes(): Promise<Finished> {
  await rm(FOLDER, { recursive: true, force: true });
  await mkdir(FOLDER, { recursive: true });
  for (const { place, language, options, code } of (await docFiles()).flatMap(blocksOf)) {
    // A part of a file is checked with that file; an app's, when the app is made.
    if (language !== "ts" || options["no-run"] || options.app || options.file) continue;
    await writeFile(join(FOLDER, `${place.replaceAll(/\W+/g, "_")}.ts`), code.replaceAll('"./', '"../../'));
  }
  const sources = JSON.parse(await readFile(join(ROOT, "tsconfig.json"), "utf8")) as {
    include: readonly string[];
    exclude: readonly string[];
  };
  const fromHere = (paths: readonly string[]) => paths.map((path) => `../../${path}`);
  const config = {
    extends: "../../tsconfig.json",
    include: ["*.ts", ...fromHere(sources.include)],
    exclude: fromHere(sources.exclude),
  };
  await writeFile(join(FOLDER, "tsconfig.json"), JSON.stringify(config));
  return run("tsc", ["--noEmit", "-p", FOLDER]);
}
