import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";

/** What a program can be asked to do: one parameter, one answer. */
export type Methods = Readonly<Record<string, (params: never) => Promise<unknown>>>;

type Ask = { readonly id: number; readonly method: string; readonly params: unknown };
type Answer = { readonly id: number; readonly value?: unknown; readonly error?: string };

/** A program of the benchmark in a process of its own. Disposing of it kills it. */
export interface Program<M extends Methods> extends AsyncDisposable {
  readonly pid: number;
  call<K extends keyof M & string>(
    method: K,
    params: Parameters<M[K]>[0],
  ): Promise<Awaited<ReturnType<M[K]>>>;
}

/** Nothing here takes longer, so whatever does has hung. */
const CALL_TIMEOUT_MS = 120_000;

/** Starts a program that ends in `serve(methods)`. */
export function startProgram<M extends Methods>(file: URL, nodeOptions: readonly string[] = []): Program<M> {
  const child = fork(file, {
    execArgv: ["--conditions=khala-source", ...nodeOptions],
    serialization: "advanced",
  });
  const waiting = new Map<number, PromiseWithResolvers<unknown>>();
  let asked = 0;
  child.on("message", ({ id, value, error }: Answer) => {
    const call = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  });
  child.once("exit", (code, signal) => {
    for (const call of waiting.values())
      call.reject(new Error(`${file.pathname} ended with ${code ?? signal}.`));
    waiting.clear();
  });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));

  return {
    pid: child.pid!,
    call(method, params) {
      const call = Promise.withResolvers<unknown>();
      const id = ++asked;
      waiting.set(id, call);
      child.send({ id, method, params } satisfies Ask);
      const timer = setTimeout(() => {
        call.reject(new Error(`${file.pathname} did not answer ${method} in time.`));
      }, CALL_TIMEOUT_MS);
      return call.promise.finally(() => clearTimeout(timer)) as ReturnType<Program<M>["call"]>;
    },
    [Symbol.asyncDispose]: () => end(child),
  };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.disconnect();
  const kill = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await gone;
  clearTimeout(kill);
}

/** The other side: answers what the parent asks, until it goes away; then `close` runs and the program ends. */
export function serve(methods: Methods, close: () => Promise<void> | void = () => {}): void {
  process.on("message", ({ id, method, params }: Ask) => {
    const answer = (rest: Omit<Answer, "id">) =>
      process.connected && process.send?.({ id, ...rest } satisfies Answer);
    Promise.resolve()
      .then(() => methods[method]!(params as never))
      .then(
        (value) => answer({ value }),
        (error: Error) => answer({ error: `${method}: ${error.stack ?? error.message}` }),
      );
  });
  process.once("disconnect", async () => {
    await close();
    process.exit(0);
  });
  // An interrupt of the whole group is the parent's to handle.
  process.on("SIGINT", () => {});
}
