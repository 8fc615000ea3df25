import { spawn } from "node:child_process";
import { once } from "node:events";
import { access, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { watchdog } from "../processes/watchdog.ts";

const ABANDONED_MS = 3_600_000;

/** The folder for things that take minutes to make, outside any checkout. */
const cacheFolder = () =>
  process.env.KHALA_TEST_CACHE ??
  join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "khala-tests");

/** The cached folder of that name, if there is one. */
export async function findCached(name: string): Promise<string | undefined> {
  const folder = join(cacheFolder(), name);
  return (await exists(folder)) ? folder : undefined;
}

/** The cached folder of that name, made if it is missing. Of two runs that make it at once, the first to finish wins. */
export async function cached(name: string, make: (folder: string) => Promise<void>): Promise<string> {
  const found = await findCached(name);
  if (found) return found;
  const cache = cacheFolder();
  await mkdir(cache, { recursive: true });
  await removeAbandoned(cache);
  const making = await mkdtemp(join(cache, `${name}.making-`));
  try {
    await make(making);
    await rename(making, join(cache, name));
  } catch (error) {
    await rm(making, { recursive: true, force: true });
    if (!(await findCached(name))) throw error;
  }
  return join(cache, name);
}

/** Removes half-made folders of killed runs. */
async function removeAbandoned(cache: string): Promise<void> {
  for (const name of await readdir(cache)) {
    if (!name.includes(".making-")) continue;
    const folder = join(cache, name);
    const changed = await stat(folder).catch(() => undefined);
    if (changed && Date.now() - changed.mtimeMs > ABANDONED_MS)
      await rm(folder, { recursive: true, force: true });
  }
}

export interface StepOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** Runs a program at low priority; fails with the end of its output. */
export async function step(command: string, args: readonly string[], options: StepOptions): Promise<void> {
  const { PATH = "" } = process.env;
  const child = spawn("nice", ["-n", "5", command, ...args], {
    cwd: options.cwd,
    // The programs it starts are built for, and run by, the Node that runs the tests.
    env: { ...process.env, PATH: `${dirname(process.execPath)}${delimiter}${PATH}`, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
    // A group of its own, so that its compilers end with it.
    detached: true,
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      output = `${output}${chunk}`.slice(-4_000);
    });
  const end = () => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, "SIGKILL");
  };
  // Its child processes would run on for minutes.
  const dog = watchdog(`kill -9 -${child.pid}`);
  options.signal.addEventListener("abort", end, { once: true });
  try {
    const closed = once(child, "close");
    if (options.signal.aborted) end();
    const [code] = await closed;
    options.signal.throwIfAborted();
    if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}:\n${output}`);
  } finally {
    dog.callOff();
    options.signal.removeEventListener("abort", end);
  }
}

/** Whether there is such a file or folder. */
export async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** The program's file on PATH. */
export async function onPath(name: string): Promise<string | undefined> {
  for (const folder of (process.env.PATH ?? "").split(delimiter))
    if (folder && (await exists(join(folder, name)))) return join(folder, name);
  return undefined;
}

/** The needs of a machine, by the Debian package that has each: a program, or a file with its whole path. */
export type Needs = Readonly<Record<string, string>>;

/** The packages of `needs` that this machine lacks. */
async function missing(needs: Needs): Promise<string[]> {
  const lacking: string[] = [];
  for (const [name, need] of Object.entries(needs))
    if (!(need.startsWith("/") ? await exists(need) : await onPath(need))) lacking.push(name);
  return lacking;
}

/** Installs the missing packages. */
export async function installPackages(needs: Needs, signal: AbortSignal): Promise<void> {
  const names = await missing(needs);
  if (names.length === 0) return;
  const [command, ...first] = process.getuid?.() === 0 ? ["apt-get"] : ["sudo", "-n", "apt-get"];
  const apt = (...args: string[]) =>
    step(command!, [...first, "-o", "DPkg::Lock::Timeout=120", ...args], {
      cwd: "/",
      env: { DEBIAN_FRONTEND: "noninteractive" },
      signal,
    });
  const install = () => apt("install", "-y", "--no-install-recommends", ...names);
  await install().catch(async () => {
    await apt("update");
    await install();
  });
}
