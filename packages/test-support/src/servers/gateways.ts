import { spawn } from "node:child_process";
import { once } from "node:events";
import { join, resolve } from "node:path";
import { eventually } from "../kit/eventually.ts";
import { bareEnv } from "../processes/bare_env.ts";

/** A gateway in a process of its own. Disposing of it kills it. */
export interface GatewayProcess extends AsyncDisposable {
  readonly url: string;
  /** True until `end` is called: a gateway that ends by itself has failed. */
  readonly wanted: boolean;
  readonly running: boolean;
  /** The end of its output. */
  output(): string;
  /** Its exit code, or the signal that ended it; null while it runs. */
  readonly ending: number | NodeJS.Signals | null;
  /** Resolves when it has ended. */
  readonly gone: Promise<unknown>;
  /** Ends it and waits for its end. */
  end(signal: "SIGTERM" | "SIGKILL"): Promise<void>;
  /** Suspends it (SIGSTOP), as a sleeping machine does. */
  freeze(): void;
  thaw(): void;
}

const PROGRAMS = join(import.meta.dirname, "../programs");
const MAX_OUTPUT = 64 << 10;

/** Starts a gateway on a free port and waits until it listens. `program` is one of programs/, or a path. */
export async function startGateway(
  env: Readonly<Record<string, string>>,
  program = "gateway.ts",
): Promise<GatewayProcess> {
  const child = spawn(process.execPath, ["--conditions=khala-source", resolve(PROGRAMS, program)], {
    // It ends with its input, so that it never outlives the test that started it, however that one ends.
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...bareEnv(), KHALA_PORT: "0", KHALA_LOG_LEVEL: "warn", ...env },
  });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      text = (text + chunk).slice(-MAX_OUTPUT);
    });
  }
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const gone = once(child, "exit").finally(() => process.off("exit", kill));
  let wanted = true;
  const running = () => child.exitCode === null && child.signalCode === null;

  async function end(signal: NodeJS.Signals): Promise<void> {
    wanted = false;
    if (!running()) return;
    child.kill(signal);
    // A frozen process takes no signal but SIGKILL.
    if (signal !== "SIGKILL") child.kill("SIGCONT");
    await gone;
  }

  try {
    const url = await eventually("a gateway listens", () => {
      if (!running())
        throw new Error(`the gateway ended with ${child.exitCode ?? child.signalCode}:\n${text}`);
      return /listening on (\S+)/.exec(text)?.[1];
    });
    return {
      url,
      get wanted() {
        return wanted;
      },
      get running() {
        return running();
      },
      get ending() {
        return child.exitCode ?? child.signalCode;
      },
      gone,
      output: () => text,
      end,
      freeze: () => child.kill("SIGSTOP"),
      thaw: () => child.kill("SIGCONT"),
      [Symbol.asyncDispose]: () => end("SIGKILL"),
    };
  } catch (error) {
    await end("SIGKILL");
    throw error;
  }
}
