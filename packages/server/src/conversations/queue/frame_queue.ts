import type { QueuedMessageJson } from "@khala/contracts/conversation/v1";

/** The most bytes of a queue in a frame, and the characters of a text that are kept beyond that. */
const MAX_BYTES = 64 << 10;
const BEGINNING = 1_000;

/** The queue as frames have it: when it is large, with the beginnings of its texts alone. */
export function frameOf(queued: readonly QueuedMessageJson[]): QueuedMessageJson[] {
  if (fits(queued)) return [...queued];
  const cut = queued.map((message) => ({
    ...message,
    parts: (message.parts ?? []).map((part) =>
      part.text === undefined ? part : { text: part.text.slice(0, BEGINNING).toWellFormed() },
    ),
  }));
  // Then they have many parts.
  return fits(cut) ? cut : cut.map(({ parts: _, ...rest }) => rest);
}

function fits(queued: readonly QueuedMessageJson[]): boolean {
  return Buffer.byteLength(JSON.stringify(queued)) <= MAX_BYTES;
}
