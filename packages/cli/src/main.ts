#!/usr/bin/env node
// Kept free of static imports: an older Node must reach the message below instead of failing on a module.
// The first that loads an app in TypeScript without a flag.
const [MAJOR, MINOR] = [22, 18] as const;
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < MAJOR || (major === MAJOR && minor < MINOR)) {
  console.error(
    `khala: Node ${MAJOR}.${MINOR} or later is needed, and this is ${process.version}. Install it: https://nodejs.org`,
  );
  process.exitCode = 1;
} else {
  // The first process of a container would not notice a signal without this, as long as nothing else handles it.
  for (const [signal, code] of [
    ["SIGINT", 130],
    ["SIGTERM", 143],
  ] as const)
    process.once(signal, () => process.listenerCount(signal) === 0 && process.exit(code));
  const [{ enableCompileCache }, { join }] = await Promise.all([import("node:module"), import("node:path")]);
  // Cached bytecode: the next start is faster and takes less memory.
  enableCompileCache(join(import.meta.dirname, "../node_modules/.cache"));
  // The reader of a pipe may close it early, as in `khala tail … | head`.
  process.stdout.on("error", (error) => process.exit("code" in error && error.code === "EPIPE" ? 0 : 1));
  // Nobody reads it any more. As an error that nothing caught it would be logged there, and fail again, for ever.
  process.stderr.on("error", () => {});
  const { run } = await import("./command_line/program.ts");
  process.exitCode = await run(process.argv.slice(2));
  // Timers and connections that an app leaves behind do not keep a stopped server alive.
  setTimeout(() => process.exit(), 1_000).unref();
}

export {};
