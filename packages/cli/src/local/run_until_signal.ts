import { constants } from "node:os";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Config } from "@khala/server";
import type { Logger } from "pino";
import { environment } from "../environment.ts";
import { Failure } from "../failure.ts";
import { note } from "../terminal/terminal.ts";

/** A server or worker that can be stopped. */
export interface Stoppable {
  stop(): Promise<void>;
}

/** npm and the terminal both pass on a Ctrl-C: signals within this time count as one. */
const SAME_SIGNAL_MS = 1_000;
const PARENT_POLL_MS = 200;
/** The extra time of a stop, beyond the drain. */
const GRACE_MS = 30_000;

/**
 * Starts a server, waits for a signal, then stops it in order. A signal during the start takes effect after it. A second
 * signal, or a stop that takes too long, ends the process at once. An error that nothing caught stops it too, unless it
 * belongs to a run, and is a failure.
 */
export async function runUntilSignal(
  { KHALA_DRAIN_MS }: Config,
  log: Logger,
  start: () => Promise<Stoppable>,
): Promise<void> {
  const { onStrayError } = await import("@khala/server");
  const stopTimeoutMs = KHALA_DRAIN_MS + GRACE_MS;
  const stopAsked = Promise.withResolvers<void>();
  let stopAskedAt: number | undefined;
  const requestStop = () => {
    if (stopAskedAt !== undefined) return;
    stopAskedAt = performance.now();
    note("Stopping. Press Ctrl-C again to stop at once.");
    stopAsked.resolve();
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (stopAskedAt !== undefined && performance.now() - stopAskedAt > SAME_SIGNAL_MS)
      process.exit(128 + constants.signals[signal]);
    requestStop();
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  const unwatch = watchParent(requestStop);
  let failed = false;
  const unsubscribe = onStrayError((error) => {
    failed = true;
    log.fatal({ err: error }, "an error outside of any run was not caught; the process stops");
    requestStop();
  });
  try {
    const running = await start();
    collectGarbage();
    await stopAsked.promise;
    const late = setTimeout(() => {
      note(`khala: The server did not stop within ${stopTimeoutMs} ms. The process ends now.`);
      process.exit(1);
    }, stopTimeoutMs);
    await running.stop();
    clearTimeout(late);
  } finally {
    unwatch();
    unsubscribe();
    for (const signal of signals) process.off(signal, onSignal);
  }
  if (failed) throw new Failure("The process stopped because of an uncaught error. See the log.");
}

/** npm passes SIGTERM to the shell between it and us, which ends without passing it on: being orphaned is the signal then. */
export function watchParent(onOrphaned: () => void): () => void {
  if (!environment.npm_lifecycle_event) return () => {};
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid !== parent) onOrphaned();
  }, PARENT_POLL_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/**
 * Returns the memory that a start needed for a moment. V8 would keep it as long as the server is idle: 37 of 170 MB
 * (bench/NOTES.md). There is no API for it but the flag.
 */
function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  const collect: () => void = runInNewContext("gc");
  collect();
}
