import { randomUUID } from "node:crypto";
import { link, readFile, rm, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

const LOOK_EVERY_MS = 50;

/**
 * Runs work that only one process of this machine may do at a time. Ignores the lock of a dead process, and waits
 * for that of a live one, up to a limit.
 */
export async function withFileLock<T>(
  path: string,
  { waitMs }: { readonly waitMs: number },
  work: () => Promise<T>,
): Promise<T> {
  const token = `${process.pid}:${randomUUID()}`;
  const own = `${path}.${token}`;
  await writeFile(own, token);
  try {
    const until = Date.now() + waitMs;
    while (!(await linked(own, path))) {
      const holder = await read(path);
      if (holder === undefined) continue;
      if (!isAlive(holder)) await takeAway(path, holder);
      else if (Date.now() > until)
        throw new Error(
          `${path} has been held by process ${pidOf(holder)} for ${waitMs} ms. End that one first.`,
        );
      else await sleep(LOOK_EVERY_MS);
    }
    try {
      return await work();
    } finally {
      await rm(path);
    }
  } finally {
    await rm(own, { force: true });
  }
}

/** A link appears with its whole content, or belongs to another process. */
async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  }
}

/** Of several processes that find the holder dead, one removes its lock; a newer lock of another process stays. */
async function takeAway(path: string, holder: string): Promise<void> {
  const mark = `${path}.${holder}.dead`;
  try {
    if (!(await linked(path, mark))) return;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw error;
  }
  if ((await read(mark)) === holder) {
    await rm(path);
    await rm(`${path}.${holder}`, { force: true });
  }
  await rm(mark);
}

async function read(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

const pidOf = (token: string) => Number(token.split(":")[0]);

function isAlive(token: string): boolean {
  try {
    process.kill(pidOf(token), 0);
    return true;
  } catch (error) {
    return codeOf(error) !== "ESRCH";
  }
}

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code;
