import { messageArray } from "../../../durable_streams/json_mode.ts";
import { formatOffset, type Offset } from "../../../durable_streams/offset.ts";
import type { Page } from "../../../durable_streams/pages.ts";
import type { DurableStreams } from "../../../durable_streams/store.ts";
import { isJson, mediaType, type StreamName } from "../../../durable_streams/stream.ts";
import type { Context } from "../../../kit/context.ts";
import { complete, endOf, nextCursor, pageWhenReady, readFrom, upToDate } from "./live.ts";

/** Interval of keep-alives on a silent stream. */
const HEARTBEAT_MS = 15_000;

export interface SseOptions {
  readonly first: Page;
  readonly cursor: string | undefined;
  /** When the connection is closed: the client reconnects, and its token is verified again. */
  readonly deadline: number;
  readonly signal: AbortSignal;
}

/** Whether bytes of this type must be wrapped to travel as text. */
export function needsBase64(contentType: string): boolean {
  return !mediaType(contentType).startsWith("text/") && !isJson(contentType);
}

/** The events of a live read: each page with where it ends, until the stream is closed or the deadline has passed. */
export async function* sseEvents(
  context: Context,
  streams: DurableStreams,
  name: StreamName,
  { first, cursor, deadline, signal }: SseOptions,
): AsyncGenerator<string> {
  const { clock, log } = context;
  const read = async (start: Offset) => wholeCharacters(await readFrom(streams, name, start));
  let page = wholeCharacters(first);
  for (;;) {
    const control = complete(page)
      ? { streamNextOffset: formatOffset(endOf(page)), streamClosed: true }
      : {
          streamNextOffset: formatOffset(endOf(page)),
          streamCursor: nextCursor(context, cursor),
          ...(upToDate(page) && { upToDate: true }),
        };
    const data = page.data.length > 0 ? event("data", payload(page)) : "";
    yield `${data}${event("control", JSON.stringify(control))}`;
    if (complete(page) || signal.aborted || clock.now() >= deadline) return;
    try {
      const next = await read(endOf(page));
      const until = Math.min(clock.now() + HEARTBEAT_MS, deadline);
      page = await pageWhenReady(context, streams, { first: next, read, deadline: until, signal });
    } catch (error) {
      // The status is already sent: the client reconnects with its offset and receives the error then.
      log.info({ err: (error as Error).message }, "a live read of a stream ended early");
      return;
    }
    if (signal.aborted) return;
  }
}

/** The page without an incomplete UTF-8 character at its end: events are text, and would corrupt it. */
function wholeCharacters(page: Page): Page {
  const { data, end } = page;
  if (needsBase64(page.stream.contentType) || complete(page)) return page;
  const begun = unfinished(data);
  return begun === 0 ? page : { ...page, data: data.subarray(0, -begun), end: end - BigInt(begun) };
}

/** The number of trailing bytes that are the beginning of a UTF-8 character. */
function unfinished(data: Buffer): number {
  for (let back = 1; back <= Math.min(3, data.length); back++) {
    const byte = data[data.length - back]!;
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    const length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return length > back ? back : 0;
  }
  return 0;
}

function payload({ stream, data }: Page): string {
  if (needsBase64(stream.contentType)) return data.toString("base64");
  return (isJson(stream.contentType) ? messageArray(data) : data).toString();
}

/** One event. Each line break of the payload begins a new data line, so that no payload can pose as an event. */
function event(type: "data" | "control", payload: string): string {
  const lines = payload.split(/\r\n|\r|\n/).map((line) => `data:${line}\n`);
  return `event: ${type}\n${lines.join("")}\n`;
}
