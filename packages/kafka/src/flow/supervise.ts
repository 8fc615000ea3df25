import { backoff, type Context, type Service, sleep } from "@khala/server/blackboard";

/** Something that runs until it is stopped or fails. */
export interface Session extends Service {
  /** Drops the running work. */
  discard(): Promise<void>;
}

const LONG_ENOUGH_MS = 60_000;

/**
 * Keeps a session running: a session that fails, such as a fenced one, is dropped, and another one starts.
 * `start` gets a callback for the reason.
 */
export function supervise(
  context: Context,
  name: string,
  start: (onFailure: (error: Error) => void) => Promise<Session>,
): Service {
  const stopping = new AbortController();
  const { signal } = stopping;

  async function run(): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      const startedAt = context.clock.now();
      const failed = Promise.withResolvers<Error | undefined>();
      const stop = () => failed.resolve(undefined);
      signal.addEventListener("abort", stop, { once: true });
      let session: Session | undefined;
      let error: Error | undefined;
      try {
        session = await start(failed.resolve);
        error = await failed.promise;
      } catch (failure) {
        error = failure as Error;
      }
      signal.removeEventListener("abort", stop);
      if (!error) return session?.stop();
      context.log.error(
        { err: error.message, service: name },
        "a reader of the board failed: it releases its partitions and starts again",
      );
      await session?.discard();
      if (context.clock.now() - startedAt > LONG_ENOUGH_MS) failures = 0;
      await sleep(context.clock, backoff(failures++, context.random, { base: 200, cap: 30_000 }), signal);
    }
  }

  const running = run();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}
