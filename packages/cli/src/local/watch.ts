import { spawn } from "node:child_process";
import { once } from "node:events";
import { note } from "../terminal/terminal.ts";
import { watchParent } from "./run_until_signal.ts";

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/**
 * Runs this command again without `--watch`, in a process that Node's watch mode starts again when a module changes that it
 * has loaded. A server that cannot start waits for the next change.
 */
export async function watch(): Promise<void> {
  const [, main = "", ...args] = process.argv;
  const again = [...process.execArgv, main, ...args.filter((arg) => arg !== "--watch")];
  const node = spawn(process.execPath, ["--watch", "--watch-preserve-output", ...again], {
    stdio: "inherit",
  });
  const stop = () => void node.kill("SIGTERM");
  for (const signal of SIGNALS) process.on(signal, stop);
  const unwatch = watchParent(stop);
  try {
    note("Watching the files of the app.");
    await once(node, "exit");
  } finally {
    unwatch();
    for (const signal of SIGNALS) process.off(signal, stop);
  }
}
