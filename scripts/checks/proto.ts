import { mkdir, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runTool } from "../install.ts";
import { type Finished, must, ROOT, run } from "../run.ts";

const PROTO = join(ROOT, "proto");
const GENERATED = "packages/contracts/src/gen";

/** Whether the protos can still be read by what was built on the last release, or, before one, on the main branch. */
export async function checkBreaking(): Promise<Finished> {
  const baseline = await findBaseline();
  if (!baseline) {
    const output = "NOT CHECKED: there is no release and no main branch with protos to compare with.";
    return { code: 0, output };
  }
  const folder = await mkdtemp(join(tmpdir(), "khala-proto-"));
  try {
    const archive = join(folder, "baseline.tar");
    await must("git", ["archive", "--output", archive, baseline, "proto"]);
    const result = await runTool("buf", ["breaking", "--against", `${archive}#subdir=proto`], PROTO);
    return { code: result.code, output: `${result.output}compared with ${baseline}` };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function findBaseline(): Promise<string | undefined> {
  const tag = await run("git", ["describe", "--tags", "--abbrev=0", "--match", "v*"]);
  const candidates = [...(tag.code === 0 ? [tag.output.trim()] : []), "origin/main", "main"];
  for (const candidate of candidates) {
    const protos = await run("git", ["cat-file", "-e", `${candidate}:proto/buf.yaml`]);
    if (protos.code === 0) return candidate;
  }
  return undefined;
}

/** Whether the generated code is what the protos generate. */
export async function checkGenerated(): Promise<Finished> {
  const folder = await mkdtemp(join(tmpdir(), "khala-generated-"));
  try {
    // The template's paths are relative to proto/, so the same layout in another place takes the output.
    const proto = join(folder, "proto");
    await mkdir(proto);
    const result = await runTool("buf", ["generate", "--output", proto], PROTO);
    if (result.code !== 0) return result;
    const [fresh, committed] = await Promise.all([
      contents(join(folder, GENERATED)),
      contents(join(ROOT, GENERATED)),
    ]);
    const names = new Set([...fresh.keys(), ...committed.keys()]);
    const differing = [...names].filter((name) => fresh.get(name) !== committed.get(name)).sort();
    return {
      code: differing.length > 0 ? 1 : 0,
      output: differing.map((name) => `differs: ${GENERATED}/${name}`).join("\n"),
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function contents(folder: string): Promise<Map<string, string>> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const found = files.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return new Map(
    await Promise.all(
      found.map(async (file) => [file.slice(folder.length + 1), await readFile(file, "utf8")] as const),
    ),
  );
}
