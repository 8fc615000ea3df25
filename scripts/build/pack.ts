import { copyFile, cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { importTool } from "../../tools/release/import_tool.ts";
import { ensureInstalled } from "../install.ts";
import { must, ROOT } from "../run.ts";

/** What package.json says that matters only in this repository. */
interface Manifest {
  name: string;
  files: readonly string[];
  devDependencies?: unknown;
  exports?: Record<string, Record<string, string>>;
}

/**
 * Packs a compiled package and answers with the tarball's path. What is packed has no `source` condition:
 * a user's own tools may know that word, and must not find TypeScript behind it.
 */
export async function pack(folder: string, destination: string): Promise<string> {
  const stage = await mkdtemp(join(tmpdir(), "khala-pack-"));
  try {
    const manifest = JSON.parse(await readFile(join(folder, "package.json"), "utf8")) as Manifest;
    for (const conditions of Object.values(manifest.exports ?? {})) delete conditions["khala-source"];
    delete manifest.devDependencies;
    await writeFile(join(stage, "package.json"), JSON.stringify(manifest, null, 2));
    for (const part of manifest.files) await cp(join(folder, part), join(stage, part), { recursive: true });
    await copyFile(join(ROOT, "LICENSE"), join(stage, "LICENSE"));
    await must("npm", ["pack", "--ignore-scripts", "--pack-destination", destination], stage);
    const { name, version } = manifest as Manifest & { version: string };
    return join(destination, `${name.replace("@", "").replace("/", "-")}-${version}.tgz`);
  } finally {
    await rm(stage, { recursive: true, force: true });
  }
}

/** What is used of @arethetypeswrong/core 0.18.5. */
interface TypesCheck {
  createPackageFromTarballData(bytes: Uint8Array): object;
  checkPackage(packed: object): Promise<{ readonly types: unknown }>;
}
interface TypesProblems {
  filterProblems(analysis: object, filter: { resolutionKind: string }): readonly { readonly kind: string }[];
}

/** What is used of publint 0.3.25. */
interface Publint {
  publint(options: { pack: { tarball: ArrayBuffer }; strict: boolean }): Promise<{
    readonly messages: readonly object[];
    readonly pkg: { readonly exports?: unknown };
  }>;
}
interface PublintUtils {
  formatMessage(message: object, pkg: object, options: { color: boolean }): string;
}

/** Lists the defects of a packed package that its users would run into, one line each. */
export async function checkTarball(tarball: string): Promise<string[]> {
  await ensureInstalled("tools/release");
  const { publint } = await importTool<Publint>("publint");
  const { formatMessage } = await importTool<PublintUtils>("publint/utils");
  const { checkPackage, createPackageFromTarballData } =
    await importTool<TypesCheck>("@arethetypeswrong/core");
  const { filterProblems } = await importTool<TypesProblems>("@arethetypeswrong/core/problems");
  const bytes = new Uint8Array(await readFile(tarball));
  const { messages, pkg } = await publint({ pack: { tarball: bytes.buffer as ArrayBuffer }, strict: true });
  const problems = messages.map((message) => `publint: ${formatMessage(message, pkg, { color: false })}`);
  if (!pkg.exports) return problems;
  const analysis = await checkPackage(createPackageFromTarballData(bytes));
  if (!analysis.types) return [...problems, "types: it has none"];
  // Ours are ES modules only: what require() sees before Node 22, or a resolver that knows no exports, is no promise.
  for (const resolutionKind of ["node16-esm", "bundler"] as const) {
    for (const problem of filterProblems(analysis, { resolutionKind })) {
      problems.push(`types: ${problem.kind} (${resolutionKind}) ${JSON.stringify(problem)}`);
    }
  }
  return problems;
}
