import { access, cp, mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, join, relative, resolve } from "node:path";

export interface NewApp {
  /** Where the app goes: a folder that does not exist yet, or is empty. */
  readonly folder: string;
  /** A folder of packed Khala packages (`npm run build` makes one), instead of the registry. */
  readonly packages?: string;
}

export interface Created {
  readonly folder: string;
  readonly name: string;
  readonly files: readonly string[];
}

/** It cannot be made here; the message says what to do. Nothing was written. */
export class NotPossible extends Error {
  override readonly name = "NotPossible";
}

const TEMPLATE = join(import.meta.dirname, "../template");
/** npm leaves a file of the first name out of packages, so it travels under the second. */
const RENAMED = [["gitignore", ".gitignore"]] as const;

/** Writes a new app that runs after `npm install`. */
export async function createApp({ folder, packages }: NewApp): Promise<Created> {
  const home = resolve(folder);
  const name = packageName(basename(home));
  const there = await readdir(home).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw new NotPossible(`${home} cannot be read (${error.code}). Name another folder.`);
  });
  if (there.some((file) => file !== ".git"))
    throw new NotPossible(`${home} is not empty. Name a folder that is, or that does not exist yet.`);
  const packed = packages === undefined ? new Map() : await packedIn(resolve(packages), home);

  await mkdir(home, { recursive: true });
  await cp(TEMPLATE, home, { recursive: true });
  for (const [from, to] of RENAMED) await rename(join(home, from), join(home, to));
  const manifest = JSON.parse(await readFile(join(home, "package.json"), "utf8")) as Manifest;
  for (const dependency of Object.keys(manifest.dependencies)) {
    const file = packed.get(dependency);
    if (file !== undefined) manifest.dependencies[dependency] = file;
  }
  // What ours need of each other must be the packed ones too.
  const overrides = packed.size > 0 ? { overrides: Object.fromEntries(packed) } : {};
  await writeFile(
    join(home, "package.json"),
    `${JSON.stringify({ name, ...manifest, ...overrides }, null, 2)}\n`,
  );
  return { folder: home, name, files: (await readdir(home)).sort() };
}

interface Manifest {
  readonly dependencies: Record<string, string>;
}

function packageName(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+|[._-]+$/g, "");
  if (name.length > 0 && name.length <= 214) return name;
  throw new NotPossible(`"${text}" makes no package name. Use letters, digits and dashes.`);
}

/** The packages that lie in a folder as tarballs, by name, as npm wants to have them named. */
async function packedIn(folder: string, home: string): Promise<Map<string, string>> {
  await access(folder).catch(() => {
    throw new NotPossible(
      `There is no folder ${folder}. Make it with \`npm run build\` in Khala's repository.`,
    );
  });
  const packed = new Map<string, string>();
  for (const file of await readdir(folder)) {
    const [, scoped, name] = /^(khala-)?([a-z-]+)-\d+\.\d+\.\d+.*\.tgz$/.exec(file) ?? [];
    if (name) packed.set(scoped ? `@khala/${name}` : name, `file:${relative(home, join(folder, file))}`);
  }
  if (packed.has("@khala/server")) return packed;
  throw new NotPossible(
    `${folder} has no packed Khala. Make it with \`npm run build\` in Khala's repository.`,
  );
}
