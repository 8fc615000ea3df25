import { spawn } from "node:child_process";
import { join } from "node:path";

/** The folder of the workspace. */
export const ROOT = join(import.meta.dirname, "..");

/** What a program left: its exit code and all that it printed, both streams together. */
export interface Finished {
  readonly code: number;
  readonly output: string;
}

/** Runs a program to its end. One that cannot be started, or takes too long, counts as failed. */
export function run(
  command: string,
  args: readonly string[],
  cwd = ROOT,
  { env = process.env, timeout = 600_000 }: { env?: NodeJS.ProcessEnv; timeout?: number } = {},
): Promise<Finished> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd, env, timeout, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        output += chunk;
      });
    }
    child.on("error", (error) => resolve({ code: 127, output: error.message }));
    child.on("close", (code, signal) => {
      resolve({ code: code ?? 1, output: signal ? `${output}\n${command} was ended by ${signal}.` : output });
    });
  });
}

/** Runs a program that has to succeed, and answers with what it printed. */
export async function must(command: string, args: readonly string[], cwd = ROOT): Promise<string> {
  const { code, output } = await run(command, args, cwd);
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} failed:\n${output}`);
  return output;
}
