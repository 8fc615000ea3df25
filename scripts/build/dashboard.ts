// npm run build -w @khala/dashboard, and after every install: builds the page that a server shows at its address.
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

const FOLDER = join(import.meta.dirname, "../../apps/dashboard");
const DIST = join(FOLDER, "dist");
/** The build goes here, and replaces the current page at the end: a server that starts meanwhile finds a complete one. */
const NEXT = join(FOLDER, "dist-next");
const COMPRESSED = /\.(js|css|html|svg)$/;
/** Below this, the headers cost more than compression saves. */
const MIN_BYTES = 1024;

type Vite = typeof import("vite");

/** The Vite of the dashboard; undefined without development dependencies. */
async function loadVite(): Promise<Vite | undefined> {
  const require = createRequire(join(FOLDER, "package.json"));
  try {
    for (const name of ["@vitejs/plugin-react", "react", "uplot/package.json"]) require.resolve(name);
    return (await import(pathToFileURL(require.resolve("vite")).href)) as Vite;
  } catch (error) {
    if (error instanceof Error && "code" in error && /MODULE_NOT_FOUND$/.test(String(error.code)))
      return undefined;
    throw error;
  }
}

/** Writes compressed copies beside each file: the server sends what the browser accepts. */
async function compress(): Promise<void> {
  const entries = await readdir(NEXT, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && COMPRESSED.test(entry.name));
  await Promise.all(
    files.map(async ({ parentPath, name }) => {
      const path = join(parentPath, name);
      const content = await readFile(path);
      if (content.length < MIN_BYTES) return;
      const params = {
        [constants.BROTLI_PARAM_QUALITY]: 9,
        [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
      };
      await writeFile(`${path}.br`, await promisify(brotliCompress)(content, { params }));
      await writeFile(`${path}.gz`, await promisify(gzip)(content));
    }),
  );
}

/** Replaces the old files. The index comes last, so that it never names a file that is not there yet. */
async function swap(): Promise<void> {
  const made = await filesOf(NEXT);
  const isIndex = (file: string) => file.startsWith("index.html");
  for (const file of [...made].sort((a, b) => Number(isIndex(a)) - Number(isIndex(b)))) {
    await mkdir(dirname(join(DIST, file)), { recursive: true });
    await rename(join(NEXT, file), join(DIST, file));
  }
  for (const file of await filesOf(DIST)) if (!made.has(file)) await rm(join(DIST, file));
  await rm(NEXT, { recursive: true, force: true });
}

async function filesOf(folder: string): Promise<Set<string>> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return new Set(
    entries
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => relative(folder, join(parentPath, name))),
  );
}

const began = performance.now();
try {
  const vite = await loadVite();
  if (vite) {
    await vite.build({
      root: FOLDER,
      configFile: join(FOLDER, "vite.config.ts"),
      logLevel: "warn",
      build: { outDir: NEXT, emptyOutDir: true },
    });
    await compress();
    await swap();
    console.log(`✓ dashboard built in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  } else
    console.warn(
      "! The dashboard was NOT built: development dependencies are not installed. Servers show a plain page instead.\n" +
        "  To have it: npm ci --include=dev",
    );
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  console.error(
    "✗ The dashboard could not be built. Everything else works without it, with a plain page in its place.\n" +
      "  Fix the error above, then: npm run build -w @khala/dashboard",
  );
  // An install does not fail without the page; a build of the page does.
  if (process.argv.includes("--strict")) process.exitCode = 1;
}
