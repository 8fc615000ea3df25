import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { bareEnv } from "./bare_env.ts";

const ROOT = join(import.meta.dirname, "../../../..");
/** A start that takes longer than this hangs. */
const READY_MS = 60_000;
const MAX_OUTPUT = 64 << 10;

export interface KhalaProcessOptions {
  /** A worker needs a KHALA_WORKER_PORT: without an address its readiness cannot be checked. */
  readonly command: "serve" | "dev" | "worker";
  readonly args?: readonly string[];
  /** Added to those of `bareEnv`. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A Khala server, or worker, in a process of its own. Disposing of it ends it. */
export interface KhalaProcess extends AsyncDisposable {
  /** Its address, such as `http://127.0.0.1:41234`. */
  readonly url: string;
  readonly pid: number;
  /** Resolves with the exit code when it has ended, null when a signal ended it. */
  readonly exited: Promise<number | null>;
  /** The end of its output, both streams together. */
  output(): string;
  /** Sends a signal and waits until it has ended; resolves with its exit code, null when the signal ended it. */
  end(signal: "SIGTERM" | "SIGINT" | "SIGKILL"): Promise<number | null>;
  /** Suspends it (SIGSTOP), as a sleeping machine does. */
  freeze(): void;
  thaw(): void;
}

/** Starts `khala` and waits until it is ready. It listens on a free port unless `env` says otherwise. */
export async function startKhala(options: KhalaProcessOptions): Promise<KhalaProcess> {
  const child = spawn(
    process.execPath,
    [
      "--conditions=khala-source",
      join(ROOT, "packages/cli/src/main.ts"),
      options.command,
      ...(options.args ?? []),
    ],
    {
      cwd: ROOT,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...bareEnv(), KHALA_PORT: "0", ...options.env },
    },
  );
  const output = collect(child);
  // A development server has a PostgreSQL to stop; a kill of a production server leaves nothing behind.
  const last = options.command === "dev" ? "SIGTERM" : "SIGKILL";
  const abandon = () => child.kill(last);
  process.once("exit", abandon);
  child.once("exit", () => process.off("exit", abandon));

  const exited = once(child, "exit").then(([code]) => code as number | null);
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, "exit");
      child.kill(signal);
      // A frozen process takes no signal but this one.
      if (signal !== "SIGKILL") child.kill("SIGCONT");
      await gone;
    }
    return child.exitCode;
  };

  const dispose = async () => {
    await Promise.race([end(last), delay(10_000, undefined, { ref: false })]);
    await end("SIGKILL");
  };

  try {
    const url = await ready(child, output, AbortSignal.timeout(READY_MS));
    return {
      url,
      pid: child.pid!,
      exited,
      output,
      end,
      freeze: () => child.kill("SIGSTOP"),
      thaw: () => child.kill("SIGCONT"),
      [Symbol.asyncDispose]: dispose,
    };
  } catch (error) {
    await dispose();
    throw error;
  }
}

function collect(child: ChildProcess): () => string {
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (chunk: string) => {
      text = (text + chunk).slice(-MAX_OUTPUT);
    });
  }
  return () => text;
}

/** Reads the address that it prints, then asks whether it is ready. */
async function ready(child: ChildProcess, output: () => string, signal: AbortSignal): Promise<string> {
  let answer = "no address printed";
  while (!signal.aborted) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new Error(`khala ended with ${child.exitCode ?? child.signalCode} while starting:\n${output()}`);
    }
    const url = /https?:\/\/[\w.[\]:-]+:\d+/.exec(output())?.[0];
    if (url) {
      answer = await fetch(`${url}/readyz`, { signal }).then(
        (response) => `GET /readyz: ${response.status}`,
        (error: Error) => error.message,
      );
      if (answer.endsWith(" 200")) return url;
    }
    await delay(20);
  }
  throw new Error(`khala was not ready in time (${answer}):\n${output()}`);
}
