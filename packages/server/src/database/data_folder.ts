import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const LOCK = /^lock\.(\d+)$/;

/**
 * Locks the data folder for this process, or fails with the process that holds it. Returns the function that unlocks it.
 * Each process writes its lock file first and then checks for others, so two that start at once never both succeed.
 * The lock file of a process that has ended is ignored.
 */
export function lockDataFolder(folder: string): () => void {
  const home = resolve(folder);
  mkdirSync(home, { recursive: true });
  const lockFile = join(home, `lock.${process.pid}`);
  if (existsSync(lockFile) && contents(lockFile) === startOf(process.pid))
    throw new DataFolderInUse(home, process.pid);
  // Atomically: a lock file without text would look like that of an ended process.
  try {
    writeFileSync(`${lockFile}.new`, startOf(process.pid), { mode: 0o600 });
    renameSync(`${lockFile}.new`, lockFile);
  } catch (error) {
    // A full disk. Each start would leave one.
    rmSync(`${lockFile}.new`, { force: true });
    throw error;
  }
  const release = () => rmSync(lockFile, { force: true });

  for (const name of readdirSync(home)) {
    const pid = Number(LOCK.exec(name)?.[1]);
    if (!pid || pid === process.pid) continue;
    const other = join(home, name);
    if (isRunning(pid) && startOf(pid) === contents(other)) {
      release();
      throw new DataFolderInUse(home, pid);
    }
    rmSync(other, { force: true });
  }
  return release;
}

/** Another process has locked the data folder. */
export class DataFolderInUse extends Error {
  override readonly name = "DataFolderInUse";

  constructor(home: string, pid: number) {
    const advice = "Stop it, or set KHALA_DATA_DIR to another folder.";
    super(`The data folder ${home} is in use by the process ${pid}. ${advice}`);
  }
}

/** Whether a process with this id exists, ours or not. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The start time of a process, to distinguish it from a later one with the same pid; empty where the system does not provide it. */
function startOf(pid: number): string {
  const boot = contents("/proc/sys/kernel/random/boot_id").trim();
  // The name, the second field, may contain spaces and parentheses: count from its end. The start is field 22.
  const fields = contents(`/proc/${pid}/stat`).split(") ").at(-1)?.split(" ") ?? [];
  return boot && fields[19] ? `${boot} ${fields[19]}` : "";
}

/** The file's text; empty if it does not exist: its owner may remove it at any time. */
function contents(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}
