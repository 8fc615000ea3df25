import { KhalaError } from "@khala/contracts";
import { positionIn } from "../../../durable_streams/forks.ts";
import { BEGINNING, type Offset } from "../../../durable_streams/offset.ts";
import type { Page } from "../../../durable_streams/pages.ts";
import type { DurableStreams } from "../../../durable_streams/store.ts";
import type { StreamName } from "../../../durable_streams/stream.ts";
import type { Context } from "../../../kit/context.ts";
import { noStream, streamGone } from "./answer.ts";
import type { Start } from "./request.ts";

/** Beyond every position: a read from here is empty and returns the tail. */
const BEYOND = { position: 10n ** 16n, writtenAt: 0n };

/** Cursors count intervals of this length since then. */
const CURSOR_SINCE = Date.UTC(2024, 9, 9);
const CURSOR_MS = 20_000;
const CURSOR_JITTER = 180;

/** Reads from where the request begins. */
export async function readFrom(streams: DurableStreams, name: StreamName, start: Start): Promise<Page> {
  const after = start === "beginning" ? BEGINNING : start === "now" ? BEYOND : start;
  const page = await streams.read(name, after);
  if (!page) throw noStream();
  if (page.stream.gone) throw streamGone();
  // An offset of a stream that was deleted and created again, or of a database before a restore.
  if (typeof start === "object" && (!page.known || positionIn(page.stream, start) === undefined))
    throw new KhalaError(
      "stale_cursor",
      "The offset is stale: the stream was created again, or the database was restored. Read from offset=-1.",
    );
  return page;
}

/** The end of a page. */
export function endOf({ stream, end, writtenAt }: Page): Offset {
  return { stream: stream.id, position: end, writtenAt };
}

/** Whether the page ends at the tail. */
export function upToDate({ stream, end }: Page): boolean {
  return end === stream.tail;
}

/** Whether the page ends at the tail of a closed stream. */
export function complete(page: Page): boolean {
  return page.stream.closed && upToDate(page);
}

/** Reads until there is data or the deadline has passed; the page may be empty then. */
export async function pageWhenReady(
  context: Context,
  streams: DurableStreams,
  options: {
    first: Page;
    read: (start: Offset) => Promise<Page>;
    deadline: number;
    signal: AbortSignal;
  },
): Promise<Page> {
  const { first, read, deadline, signal } = options;
  const ready = (page: Page) => page.data.length > 0 || complete(page);
  if (ready(first)) return first;
  const start = endOf(first);
  using watcher = streams.watch(start.stream);
  for (;;) {
    const page = await read(start);
    watcher.saw(page.stream);
    const left = deadline - context.clock.now();
    if (ready(page) || left <= 0 || signal.aborted) return page;
    await watcher.wait(left, signal);
  }
}

/** A number that moves with time, and always past the client's own: caches may join equal requests, never loop on them. */
export function nextCursor({ clock, random }: Context, cursor: string | undefined): string {
  const now = Math.floor((clock.now() - CURSOR_SINCE) / CURSOR_MS);
  const theirs = cursor !== undefined && /^\d{1,15}$/.test(cursor) ? Number(cursor) : -1;
  return String(theirs < now ? now : theirs + 1 + Math.floor(random() * CURSOR_JITTER));
}
