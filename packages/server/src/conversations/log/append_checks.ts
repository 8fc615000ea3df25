import { invalid } from "../../kit/invalid.ts";

const MAX_ENTRIES = 10_000;

/** Refuses entries that some driver cannot store unchanged. */
export function checkAppend(stream: string, entries: readonly string[]): void {
  checkStream(stream);
  if (entries.length === 0) throw invalid("entries", "Append at least one entry.");
  if (entries.length > MAX_ENTRIES)
    throw invalid("entries", `Append at most ${MAX_ENTRIES} entries at once, not ${entries.length}.`);
  entries.forEach((entry, i) => {
    if (/[\n\r\0]/.test(entry))
      throw invalid(`entries[${i}]`, "An entry may not contain a line break or a NUL character.");
    if (!entry.isWellFormed())
      throw invalid(`entries[${i}]`, "An entry may not contain half of a surrogate pair.");
  });
}

/** Refuses an invalid stream name. */
export function checkStream(stream: string): void {
  if (!/^[\x20-\x7e]{1,512}$/.test(stream))
    throw invalid("stream", "The name of a stream must have 1 to 512 printable ASCII characters.");
}
