import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** Whether the group of a program was there to be told. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-child.pid!, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return false;
    throw error;
  }
}

/** Gathers the end of what a program prints, both streams together. */
export function collect(child: ChildProcess): () => string {
  let text = "";
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      text = (text + chunk).slice(-16_384);
    });
  }
  return () => text;
}

/** Resolves with the exit code of a program; null when a signal ended it. */
export async function ended(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  return child.exitCode;
}

/** Waits until a program has printed something; it is an error if it ends before. */
export async function printed(child: ChildProcess, wanted: RegExp): Promise<RegExpExecArray> {
  const output = collect(child);
  for (;;) {
    const found = wanted.exec(output());
    if (found) return found;
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Error(`It ended without printing ${wanted}:\n${output()}`);
    await nextOutput(child);
  }
}

/** Resolves when a program prints something or ends, and leaves no listeners behind. */
function nextOutput(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    const emitters = [
      [child.stdout!, "data"],
      [child.stderr!, "data"],
      [child, "exit"],
    ] as const;
    const done = () => {
      for (const [emitter, event] of emitters) emitter.off(event, done);
      resolve();
    };
    for (const [emitter, event] of emitters) emitter.on(event, done);
  });
}
