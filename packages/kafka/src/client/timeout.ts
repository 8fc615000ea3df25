import { type Context, sleep } from "@khala/server/blackboard";

/** Waits for something that stops, and not longer than so long: what is late goes on alone. */
export async function within(
  { clock, log }: Pick<Context, "clock" | "log">,
  ms: number,
  name: string,
  stop: () => Promise<void>,
): Promise<void> {
  const ended = new AbortController();
  let late = true;
  const stopping = stop().finally(() => {
    late = false;
    ended.abort();
  });
  await Promise.race([stopping, sleep(clock, ms, ended.signal)]);
  if (!late) return stopping;
  log.warn({ service: name }, "the brokers do not answer: it is left without a farewell");
  stopping.catch((error: Error) =>
    log.warn({ err: error.message, service: name }, "it did not end in order"),
  );
}
