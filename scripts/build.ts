// npm run build: compiles each package to its dist/, packs it into dist/*.tgz, and checks that others can use the result.
// Lists what a release depends on in dist/sbom.cdx.json (CycloneDX).
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { compile } from "./build/compile.ts";
import { checkTarball, pack } from "./build/pack.ts";
import { must, ROOT } from "./run.ts";

/** In the order in which they need each other. */
const PACKAGES = ["contracts", "server", "testing", "s3", "client", "create-khala", "cli"];

const tarballs = join(ROOT, "dist");
await rm(tarballs, { recursive: true, force: true });
await mkdir(tarballs);
await must(process.execPath, [join(ROOT, "scripts/build/dashboard.ts"), "--strict"]);
for (const name of [...PACKAGES.map((name) => join("packages", name)), "apps/dashboard"]) {
  const folder = join(ROOT, name);
  if (name.startsWith("packages/")) await compile(folder);
  const tarball = await pack(folder, tarballs);
  const problems = await checkTarball(tarball);
  console.log(`${problems.length === 0 ? "✓" : "✗"} ${tarball.slice(ROOT.length + 1)}`);
  for (const problem of problems) console.log(`  ${problem}`);
  if (problems.length > 0) process.exitCode = 1;
}
const sbom = ["sbom", "--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"];
await writeFile(join(tarballs, "sbom.cdx.json"), await must("npm", sbom));
console.log("✓ dist/sbom.cdx.json");
