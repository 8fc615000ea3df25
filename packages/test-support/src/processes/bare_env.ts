const KEPT = ["PATH", "HOME", "NODE_COMPILE_CACHE"] as const;

/** All that a program of a test takes from our environment: settings of the machine must not change what it does. */
export function bareEnv(): Record<string, string> {
  return Object.fromEntries(KEPT.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
}
