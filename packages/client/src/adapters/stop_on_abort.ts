/** The response header that names the address at which the streamed run is stopped. */
const STOP_HEADER = "khala-stop";

/** How long a request waits for the stops before it: the answer that names a run may never come. */
const STOP_MS = 5_000;

type Fetch = typeof globalThis.fetch;

/**
 * A `fetch` for `DefaultChatTransport` of the AI SDK and `HttpAgent` of AG-UI: an abort also stops the run on the server, so
 * that `stop()` and `abortRun()` mean what they say. A page that is closed or reloaded aborts nothing, and its run continues.
 */
export function stopOnAbort(fetch: Fetch = (input, init) => globalThis.fetch(input, init)): Fetch {
  const stops = new Set<Promise<void>>();
  return async (input, init) => {
    const request = typeof input === "string" || input instanceof URL ? undefined : input;
    const signal = init?.signal ?? request?.signal;
    if (!signal) return fetch(input, init);
    signal.throwIfAborted();
    // The request continues until the answer names its run: otherwise nobody could stop the run it has started.
    const leaving = new AbortController();
    // The server has to know of a stop before the next message, which finds the conversation busy otherwise.
    const sent = within(STOP_MS, Promise.all(stops)).then(() => {
      signal.throwIfAborted();
      return fetch(input, { ...init, signal: leaving.signal });
    });
    const headers = new Headers(init?.headers ?? request?.headers);
    const stop = async () => {
      try {
        const response = await sent;
        const address = response.headers.get(STOP_HEADER);
        leaving.abort(signal.reason);
        if (address === null) return;
        const authorization = headers.get("authorization");
        const credentials = init?.credentials ?? request?.credentials;
        await fetch(new URL(address, response.url), {
          method: "POST",
          ...(authorization !== null && { headers: { authorization } }),
          ...(credentials && { credentials }),
        });
      } catch {
        // Without an answer there is no run to stop; and if a stop fails, the run ends by itself.
        leaving.abort(signal.reason);
      }
    };
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener(
        "abort",
        () => {
          const stopping = stop().finally(() => stops.delete(stopping));
          stops.add(stopping);
          reject(signal.reason);
        },
        { once: true },
      );
    });
    // An abort may follow the answer, when nothing awaits this any more.
    aborted.catch(() => {});
    return Promise.race([sent, aborted]);
  };
}

/** Resolves with the work, or after the time. */
async function within(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}
