import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";

/** A small program of packages/test-support/src/programs in a process of its own. Disposing of it kills it. */
export interface Program extends AsyncDisposable {
  readonly child: ChildProcess;
  /** Its next line of output, or its error output when it ends without one. */
  line(): Promise<string>;
  /** Resolves when it has ended, with its exit code and error output. */
  readonly ended: Promise<{ code: number | null; errors: string }>;
}

/** The source file of a program in packages/test-support/src/programs. */
export function programFile(name: string): string {
  return join(import.meta.dirname, "../programs", `${name}.ts`);
}

/** Starts a program with arguments. */
export function startProgram(
  name: "kafka_worker" | "migrate" | "own_kafka" | "own_postgres",
  ...args: readonly string[]
): Program {
  const file = programFile(name);
  const child = spawn(process.execPath, ["--conditions=khala-source", file, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    errors = (errors + chunk).slice(-16_384);
  });
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, errors }));
  return {
    child,
    ended,
    async line() {
      const { value, done } = await lines.next();
      if (done) throw new Error(`${name} ended without a word: ${(await ended).errors}`);
      return value;
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}
