import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, readlinkSync, realpathSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { type Clock, sleep } from "../kit/clock.ts";
import { isRunning } from "./data_folder.ts";

/**
 * Stops the server of a killed owner, which still uses the cluster. A pid file whose process is known to be another one is
 * removed: PostgreSQL sees only that the process lives, and would not start.
 */
export async function stopOrphan(cluster: string, clock: Clock): Promise<void> {
  const pidFile = join(cluster, "postmaster.pid");
  if (!existsSync(pidFile)) return;
  const pid = Number(readFileSync(pidFile, "utf8").split("\n")[0]);
  if (!Number.isInteger(pid) || pid <= 0 || !isRunning(pid)) return;
  const found = serves(pid, cluster);
  if (found === false) rmSync(pidFile, { force: true });
  if (!found) return;
  // A server that does not shut down has a slow disk or hangs: it is stopped at once, and the next one recovers the cluster.
  for (const [signal, patienceMs] of [
    ["SIGINT", 10_000],
    ["SIGQUIT", 20_000],
  ] as const) {
    process.kill(pid, signal);
    for (let waited = 0; waited < patienceMs; waited += 50) {
      if (!isRunning(pid) || !serves(pid, cluster)) return;
      await sleep(clock, 50);
    }
  }
  throw new Error(`The PostgreSQL server ${pid} still uses ${cluster}. Stop it and start again.`);
}

/** Whether the process is the cluster's server, and not another one that reused the pid. Undefined if that is unknown. */
function serves(pid: number, cluster: string): boolean | undefined {
  try {
    if (process.platform !== "linux") {
      const ps = ["-o", "command=", "-p", String(pid)];
      const command = execFileSync("ps", ps, { encoding: "utf8", timeout: 5_000 });
      return command.includes(cluster) || (/postgres|postmaster/.test(command) ? undefined : false);
    }
    const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    if (command.includes(cluster)) return true;
    // A server works in the folder of its cluster, however that was named when it was started.
    const folder = workingFolder(pid);
    if (folder !== undefined) return folder === realpathSync(cluster);
    return /^(postgres|postmaster)/.test(basename(command[0]!)) ? undefined : false;
  } catch {
    return undefined;
  }
}

function workingFolder(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    // Another user's process, or one that has ended and is not collected yet.
    return undefined;
  }
}
