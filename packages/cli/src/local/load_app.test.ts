import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { must, ROOT } from "../../../../scripts/run.ts";

const SERVER = JSON.stringify(join(ROOT, "packages/server/src/index.ts"));
const LOADER = JSON.stringify(join(ROOT, "packages/cli/src/local/load_app.ts"));

/** Parts of apps that cannot be loaded, by name, and what is said about them. */
const BROKEN: Record<string, readonly [source: string, said: RegExp]> = {
  syntax: [
    "export const one = 1;\nexport const part = { models: [ };\n",
    /: Expression expected\n +syntax\/part\.ts:2\n +export const one.*\n +export const part = \{ models: \[ \};\n +\^$/,
  ],
  thrown: [
    "const none: any = undefined;\nexport const part = none.models;\n",
    /'models'\)\n +at thrown\/part\.ts:2:26$/,
  ],
  refused: [
    `import { defineStream } from ${SERVER};\nexport const part = defineStream({ kind: "a b", scope: "x", events: {} });\n`,
    /lowercase name, not "a b"\.\n +at refused\/part\.ts:2:21$/,
  ],
  missing: [
    'import { x } from "./nowhere.ts";\nexport const part = x;\n',
    /nowhere\.ts' imported from \S+\/missing\/part\.ts$/,
  ],
};

// A message without its place leaves somebody to search all files of the app.
test("names the file and the line where an app cannot be loaded", async () => {
  const folder = await mkdtemp(join(tmpdir(), "khala-load-"));
  try {
    await writeFile(join(folder, "package.json"), '{ "type": "module" }');
    for (const [name, [source]] of Object.entries(BROKEN)) {
      await mkdir(join(folder, name));
      await writeFile(join(folder, name, "part.ts"), source);
      await writeFile(join(folder, name, "app.ts"), 'export { part as default } from "./part.ts";\n');
    }
    const files = Object.keys(BROKEN).map((name) => `${name}/app.ts`);
    const program = `
      const { loadApp } = await import(${LOADER});
      const said = [];
      for (const file of ${JSON.stringify(files)}) await loadApp(file).catch(({ message }) => said.push(message));
      console.log(JSON.stringify(said));`;
    const printed = await must(
      process.execPath,
      ["--conditions=khala-source", "--input-type=module", "--eval", program],
      folder,
    );
    const said = JSON.parse(printed) as string[];
    for (const [i, [, wanted]] of Object.values(BROKEN).entries()) expect(said[i]).toMatch(wanted);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
