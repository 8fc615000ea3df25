import { createHash, randomUUID } from "node:crypto";
import { copyFile, lstat, mkdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { availableParallelism } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { cached, exists, findCached, installPackages, onPath, step } from "./cache.ts";

const PACKAGE = join(import.meta.dirname, "../../../kafka");
const NATIVE = "@confluentinc/kafka-javascript";
const MODULES = [NATIVE, "@platformatic/kafka"];
const DOWNLOAD_MS = 20_000;

/** The packages needed to build the native client. */
const BUILD_NEEDS = {
  "g++": "g++",
  make: "make",
  python3: "python3",
  "libssl-dev": "/usr/include/openssl/ssl.h",
  "zlib1g-dev": "/usr/include/zlib.h",
} as const;

/** The node_modules that packages/kafka imports from: its own, or the cached ones, then linked from there. */
export async function findKafkaClient(): Promise<string | undefined> {
  const own = join(PACKAGE, "node_modules");
  // A link is ours, and may be of another version or another Node.
  const entry = await lstat(join(own, NATIVE)).catch(() => undefined);
  if (entry?.isDirectory() && (await loads(join(PACKAGE, "package.json")))) return own;
  const folder = await findCached(await cacheName());
  return folder && linked(folder);
}

/** Downloads the native client, or builds it from source where that fails, once for this machine and this Node. */
export async function buildKafkaClient(signal: AbortSignal): Promise<string> {
  const folder = await cached(await cacheName(), async (making) => {
    for (const name of ["package.json", "package-lock.json", ".npmrc"])
      await copyFile(join(PACKAGE, name), join(making, name));
    await step("npm", ["ci", "--ignore-scripts"], { cwd: making, signal });
    const downloaded = await download(making, signal).then(
      () => loads(join(making, "package.json")),
      () => false,
    );
    signal.throwIfAborted();
    if (!downloaded) await compile(making, signal);
    if (!(await loads(join(making, "package.json"))))
      throw new Error(`${NATIVE} was built, and Node ${process.version} cannot load it.`);
  });
  return linked(folder);
}

/** One cache per set of versions and binary interface. */
async function cacheName(): Promise<string> {
  const lock = await readFile(join(PACKAGE, "package-lock.json"));
  const { version } = JSON.parse(lock.toString()).packages[`node_modules/${NATIVE}`];
  const hash = createHash("sha256").update(lock).digest("hex").slice(0, 8);
  const { platform, arch, versions } = process;
  return `kafka-client-${version}-${hash}-${platform}-${arch}-${versions.modules}`;
}

function download(folder: string, signal: AbortSignal): Promise<void> {
  return step(
    process.execPath,
    [join(folder, "node_modules/@mapbox/node-pre-gyp/bin/node-pre-gyp"), "install"],
    {
      cwd: join(folder, "node_modules", NATIVE),
      signal: AbortSignal.any([signal, AbortSignal.timeout(DOWNLOAD_MS)]),
    },
  );
}

async function compile(folder: string, signal: AbortSignal): Promise<void> {
  if (process.platform === "linux") await installPackages(BUILD_NEEDS, signal);
  const node = dirname(dirname(process.execPath));
  const headers = await exists(join(node, "include/node/node.h"));
  await step("npm", ["rebuild", NATIVE], {
    cwd: folder,
    env: {
      PATH: [await modestMake(folder), dirname(process.execPath), process.env.PATH].join(delimiter),
      npm_config_build_from_source: "true",
      // Uses the Node headers of this machine, without a download.
      ...(headers && { npm_config_nodedir: node }),
      // Uses the OpenSSL of the machine, not a downloaded one.
      CKJS_LINKING: "dynamic",
    },
    signal,
  });
}

/** A folder with a `make` that takes a bare -j, by which the build would start a hundred compilers, for one per core. */
async function modestMake(folder: string): Promise<string> {
  const bin = join(folder, "bin");
  await mkdir(bin);
  const script = `#!/bin/sh
for arg do shift; [ "$arg" = -j ] && arg=-j${availableParallelism()}; set -- "$@" "$arg"; done
exec ${await onPath("make")} "$@"
`;
  await writeFile(join(bin, "make"), script, { mode: 0o755 });
  return bin;
}

/** Whether the native client loads from there; checked in a process of its own, which a broken addon would end. */
async function loads(from: string): Promise<boolean> {
  try {
    createRequire(from).resolve(NATIVE);
  } catch {
    return false;
  }
  const program = `require("node:module").createRequire(process.argv[1])("${NATIVE}")`;
  return step(process.execPath, ["-e", program, from], {
    cwd: dirname(from),
    signal: AbortSignal.timeout(30_000),
  }).then(
    () => true,
    () => false,
  );
}

/** Links the modules into packages/kafka, where its source looks for them. Each link appears whole. */
async function linked(folder: string): Promise<string> {
  const own = join(PACKAGE, "node_modules");
  for (const name of MODULES) {
    const link = join(own, name);
    await mkdir(dirname(link), { recursive: true });
    const fresh = `${link}.${randomUUID()}`;
    await symlink(join(folder, "node_modules", name), fresh, "dir");
    await rename(fresh, link).catch(async (error: NodeJS.ErrnoException) => {
      await rm(fresh);
      throw new Error(
        `${link} is there already and does not load (${error.code}). Remove packages/kafka/node_modules, or run \`npm ci\` in packages/kafka.`,
      );
    });
  }
  return own;
}
