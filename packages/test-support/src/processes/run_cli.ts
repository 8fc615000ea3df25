import { AsyncLocalStorage } from "node:async_hooks";
import { run } from "../../../cli/src/command_line/program.ts";

/** The output of a command. */
interface CliOutput {
  out: string;
  err: string;
}

const outputs = new AsyncLocalStorage<CliOutput>();
/** The input of a command: its environment. */
const SETTINGS = /^(KHALA_|KAFKA_|CONVEX_|REDIS_URL$|DATABASE_URL$|FORCE_COLOR$)/;

capture("stdout", "out");
capture("stderr", "err");

/** Runs a `khala` command in this process to its end, as its main program does. `env` replaces the settings of this process. */
export async function runCli(
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<CliOutput & { code: number }> {
  const output: CliOutput = { out: "", err: "" };
  if (running++ === 0) before = { ...process.env };
  setEnvironment({ ...withoutSettings(before), ...env });
  process.exitCode = undefined;
  try {
    const code = await outputs.run(output, () => run(args));
    return { code, ...output };
  } finally {
    // Neither a command's exit code nor its settings may become those of the tests that follow.
    process.exitCode = undefined;
    if (--running === 0) setEnvironment(before);
  }
}

let running = 0;
let before: NodeJS.ProcessEnv = {};

function withoutSettings(variables: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(variables).filter(([name]) => !SETTINGS.test(name)));
}

function setEnvironment(variables: NodeJS.ProcessEnv): void {
  for (const name of Object.keys(process.env)) if (!(name in variables)) delete process.env[name];
  Object.assign(process.env, variables);
}

/** Collects a command's output; the test runner's own output is not changed. */
function capture(stream: "stdout" | "stderr", field: keyof CliOutput): void {
  const target = process[stream];
  const write = target.write.bind(target) as (...args: unknown[]) => boolean;
  target.write = ((chunk: string | Uint8Array, ...rest: unknown[]) => {
    const output = outputs.getStore();
    if (!output) return write(chunk, ...rest);
    output[field] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString();
    return true;
  }) as typeof target.write;
}
