const KEPT = ["PATH", "HOME", "NODE_COMPILE_CACHE"] as const;

/** The variables a test's program takes from our environment, and `more`: settings of the machine must not change its behaviour. */
export function bareEnv(more: readonly string[] = []): Record<string, string> {
  const names = [...KEPT, ...more];
  return Object.fromEntries(names.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])));
}
