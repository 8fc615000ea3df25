const KEPT = ["PATH", "HOME", "NODE_COMPILE_CACHE"] as const;

/** The variables a test's program takes from our environment: settings of the machine must not change its behaviour. */
export function bareEnv(): Record<string, string> {
  return Object.fromEntries(KEPT.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
}
