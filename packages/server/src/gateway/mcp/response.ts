import type { FastifyReply } from "fastify";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";

/** How long a client may leave waiting data unread. */
const SLOW_MS = 30_000;

/** Sends what the SDK answered, and resolves when it has ended. A stream is cut when its token expires, when the signal aborts, or when its client does not read. */
export async function sendResponse(
  reply: FastifyReply,
  context: Context,
  response: Response,
  { expiresAt, signal }: { readonly expiresAt?: number; readonly signal?: AbortSignal },
): Promise<void> {
  const { raw } = reply;
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
  if (!isStream) {
    reply.code(response.status).headers(Object.fromEntries(response.headers));
    await reply.send(response.body ? await response.text() : undefined);
    return;
  }
  reply.hijack();
  for (const [name, value] of Object.entries({
    ...reply.getHeaders(),
    ...Object.fromEntries(response.headers),
  }))
    if (value !== undefined) raw.setHeader(name, value);
  raw.statusCode = response.status;
  raw.setHeader("x-accel-buffering", "no");
  // Clients wait for the head before anything has happened.
  raw.flushHeaders();
  const over = new AbortController();
  raw.once("close", () => over.abort());
  const cancelExpiry =
    expiresAt === undefined
      ? undefined
      : context.clock.after(Math.max(0, expiresAt - context.clock.now()), () => over.abort());
  const reader = response.body!.getReader();
  over.signal.addEventListener("abort", () => void reader.cancel().catch(() => {}), { once: true });
  signal?.addEventListener("abort", () => over.abort(), { once: true });
  if (signal?.aborted) over.abort();
  try {
    for (let next = await reader.read(); !next.done && !over.signal.aborted; next = await reader.read()) {
      if (raw.write(next.value)) continue;
      const drained = new AbortController();
      raw.once("drain", () => drained.abort());
      await sleep(context.clock, SLOW_MS, AbortSignal.any([over.signal, drained.signal]));
      if (drained.signal.aborted) continue;
      raw.destroy();
      break;
    }
    raw.end();
  } catch {
    // The session ended: its client sees the end of the stream.
    raw.end();
  } finally {
    cancelExpiry?.();
    over.abort();
  }
}
