import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const LOCK = /^lock\.(\d+)$/;

/**
 * Makes the data folder this process's own, or says which process has it; the answer gives it back.
 * Each process first leaves its mark and then looks for others, so of two that start at once never both go on.
 * A mark whose process is gone, killed or not, counts for nothing.
 */
export function lockDataFolder(folder: string): () => void {
  const home = resolve(folder);
  mkdirSync(home, { recursive: true });
  const mark = join(home, `lock.${process.pid}`);
  if (existsSync(mark) && contents(mark) === startOf(process.pid)) throw inUse(home, process.pid);
  // At once: a mark that is there without its text would look like that of a process that is gone.
  writeFileSync(`${mark}.new`, startOf(process.pid), { mode: 0o600 });
  renameSync(`${mark}.new`, mark);
  const release = () => rmSync(mark, { force: true });

  for (const name of readdirSync(home)) {
    const pid = Number(LOCK.exec(name)?.[1]);
    if (!pid || pid === process.pid) continue;
    const other = join(home, name);
    if (isRunning(pid) && startOf(pid) === contents(other)) {
      release();
      throw inUse(home, pid);
    }
    rmSync(other, { force: true });
  }
  return release;
}

function inUse(home: string, pid: number): Error {
  const advice = "Stop it, or set KHALA_DATA_DIR to another folder.";
  return new Error(`The data folder ${home} is in use by the process ${pid}. ${advice}`);
}

/** Whether a process with this id is there, ours or not. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** When a process started, to tell it from a later one with the same id; empty where the system does not say. */
function startOf(pid: number): string {
  const boot = contents("/proc/sys/kernel/random/boot_id").trim();
  // The name, the second field, may hold spaces and parentheses: count from its end. The start is field 22.
  const fields = contents(`/proc/${pid}/stat`).split(") ").at(-1)?.split(" ") ?? [];
  return boot && fields[19] ? `${boot} ${fields[19]}` : "";
}

/** The file's text; empty when there is none, because its owner may remove it at any time. */
function contents(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if (["ENOENT", "ESRCH"].includes((error as NodeJS.ErrnoException).code ?? "")) return "";
    throw error;
  }
}
