import { spawn } from "node:child_process";

/** An action that runs when this process ends, however it ends, unless it is cancelled. */
export interface Watchdog {
  /** Runs it now. */
  act(): void;
  callOff(): void;
}

/** Gives a line of shell to a process of its own, which runs it when its input ends: also after a kill -9 of this process. */
export function watchdog(line: string, ...args: readonly string[]): Watchdog {
  // Its own process group: a Ctrl-C at the terminal must not end it first.
  const child = spawn("sh", ["-c", `cat >/dev/null; ${line}`, "sh", ...args], {
    stdio: ["pipe", "ignore", "ignore"],
    detached: true,
  });
  child.unref();
  const act = () => void child.stdin.end();
  // Vitest was killed: its workers live on for a while.
  process.once("disconnect", act);
  return {
    act,
    callOff() {
      process.off("disconnect", act);
      child.kill("SIGKILL");
    },
  };
}
