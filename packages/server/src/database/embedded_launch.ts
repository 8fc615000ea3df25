import { type ChildProcess, spawn } from "node:child_process";
import { statSync } from "node:fs";
import { dirname } from "node:path";

/** The account that a program runs under. */
export interface User {
  readonly uid: number;
  readonly gid: number;
}

/** PostgreSQL refuses to run as root, so root lends it the uid of nobody. */
export function unprivilegedUser(): User | undefined {
  return process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : undefined;
}

/** A program of PostgreSQL that works on a cluster. */
export interface Launch {
  readonly file: string;
  readonly cluster: string;
  readonly args: readonly string[];
  readonly user: User | undefined;
  /** File descriptor that takes what it prints. */
  readonly log: number;
}

/** Spawns as `user`; where folders above are closed to that user, with the one right that opens them. */
export function launch({ file, cluster, args, user, log }: Launch): ChildProcess {
  const command = ["-D", cluster, ...args];
  // Its own process group: a Ctrl-C at the terminal reaches us, and we stop it in order.
  const options = { stdio: ["ignore", log, log] as ["ignore", number, number], cwd: "/", detached: true };
  if (!user || (opensTo(file) && opensTo(cluster))) {
    return spawn(file, command, { ...options, ...(user && { uid: user.uid, gid: user.gid }) });
  }
  const caps = "+dac_override,+dac_read_search";
  // Without the secure bit access(2), by which initdb looks for its siblings, would count the user's own rights alone.
  const lend = [
    "--reuid",
    `${user.uid}`,
    "--regid",
    `${user.gid}`,
    "--clear-groups",
    "--securebits=+no_setuid_fixup",
  ];
  return spawn(
    "setpriv",
    [...lend, `--inh-caps=${caps}`, `--ambient-caps=${caps}`, "--", file, ...command],
    options,
  );
}

/** Whether any user may walk down to the path. */
function opensTo(path: string): boolean {
  for (let folder = dirname(path); folder !== dirname(folder); folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false;
  }
  return true;
}
