import { currentRun } from "../conversations/runs/run_scope.ts";

/**
 * Handles rejections that nothing awaits, and exceptions that nothing catches, in this process. One that began in an
 * engine or a tool fails its run, and the process continues. `unowned` gets the others: log it, stop the server, and exit
 * with an error. Returns a function that removes the handlers.
 */
export function onStrayError(unowned: (error: unknown) => void): () => void {
  const handle = (error: unknown) => {
    const run = currentRun();
    if (run) run.stray(error);
    else unowned(error);
  };
  const events = ["uncaughtException", "unhandledRejection"] as const;
  for (const event of events) process.on(event, handle);
  return () => {
    for (const event of events) process.off(event, handle);
  };
}
