import { access, cp, mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { basename, join, relative, resolve } from "node:path";

/** The pages that an app can have. The server beside them is the same. */
export const TEMPLATES = ["vite", "next"] as const;
export type Template = (typeof TEMPLATES)[number];

export interface NewApp {
  /** Where the app goes: a folder that does not exist yet, or is empty. */
  readonly folder: string;
  /** A folder of packed Khala packages (`npm run build` makes one), instead of the registry. */
  readonly packages?: string;
  /** Default "vite". */
  readonly template?: Template;
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

const TEMPLATE_FOLDER = join(import.meta.dirname, "../template");
/** npm leaves a file of the first name out of packages, so it travels under the second. */
const RENAMED = [["gitignore", ".gitignore"]] as const;

/** Writes a new app that runs after `npm install`. */
export async function createApp({ folder, packages, template = "vite" }: NewApp): Promise<Created> {
  const home = resolve(folder);
  const name = packageName(basename(home));
  const there = await readdir(home).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw new NotPossible(`${home} cannot be read (${error.code}). Name another folder.`);
  });
  if (there.some((file) => file !== ".git"))
    throw new NotPossible(`${home} is not empty. Name an empty folder, or one that does not exist yet.`);
  const packed = packages === undefined ? new Map() : await packedIn(resolve(packages), home);

  await mkdir(home, { recursive: true });
  for (const part of ["shared", template]) await cp(join(TEMPLATE_FOLDER, part), home, { recursive: true });
  for (const [from, to] of RENAMED) await rename(join(home, from), join(home, to));
  const manifest = merged(await manifestOf("shared"), await manifestOf(template));
  for (const dependencies of [manifest.dependencies, manifest.devDependencies])
    for (const name of Object.keys(dependencies))
      dependencies[name] = packed.get(name) ?? dependencies[name]!;
  // What ours need of each other must be the packed ones too.
  const overrides = packed.size > 0 ? { overrides: Object.fromEntries(packed) } : {};
  await writeFile(
    join(home, "package.json"),
    `${JSON.stringify({ name, ...manifest, ...overrides }, null, 2)}\n`,
  );
  return { folder: home, name, files: (await readdir(home)).sort() };
}

const SECTIONS = ["scripts", "dependencies", "devDependencies"] as const;
type Manifest = Record<(typeof SECTIONS)[number], Record<string, string>>;

async function manifestOf(part: string): Promise<Manifest> {
  return JSON.parse(await readFile(join(TEMPLATE_FOLDER, part, "package.json"), "utf8")) as Manifest;
}

/** The shared package.json with what a template adds, each section sorted as npm sorts it. */
function merged(shared: Manifest, more: Partial<Manifest>): Manifest {
  const manifest = { ...shared };
  for (const section of SECTIONS) {
    const entries = Object.entries({ ...shared[section], ...more[section] });
    if (section !== "scripts") entries.sort(([a], [b]) => (a < b ? -1 : 1));
    manifest[section] = Object.fromEntries(entries);
  }
  return manifest;
}

function packageName(text: string): string {
  const name = text
    .toLowerCase()
    .replace(/[^a-z0-9._-]+/g, "-")
    .replace(/^[._-]+|[._-]+$/g, "");
  if (name.length > 0 && name.length <= 214) return name;
  throw new NotPossible(`"${text}" cannot be turned into a package name. Use letters, digits and dashes.`);
}

/** The packages that lie in a folder as tarballs, by name, as npm wants to have them named. */
async function packedIn(folder: string, home: string): Promise<Map<string, string>> {
  await access(folder).catch(() => {
    throw new NotPossible(
      `The folder ${folder} does not exist. Create it with \`npm run build\` in Khala's repository.`,
    );
  });
  const packed = new Map<string, string>();
  for (const file of await readdir(folder)) {
    const [, scoped, name] = /^(khala-)?([a-z-]+)-\d+\.\d+\.\d+.*\.tgz$/.exec(file) ?? [];
    if (name) packed.set(scoped ? `@khala/${name}` : name, `file:${relative(home, join(folder, file))}`);
  }
  if (packed.has("@khala/server")) return packed;
  throw new NotPossible(
    `${folder} has no packed Khala. Create it with \`npm run build\` in Khala's repository.`,
  );
}
