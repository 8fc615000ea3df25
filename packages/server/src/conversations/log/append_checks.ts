import { KhalaError } from "@khala/contracts";

const MAX_ENTRIES = 10_000;

/** Refuses entries that some driver cannot store unchanged. */
export function checkAppend(stream: string, entries: readonly string[]): void {
  checkStream(stream);
  if (entries.length === 0) invalid("entries", "Append at least one entry.");
  if (entries.length > MAX_ENTRIES)
    invalid("entries", `Append at most ${MAX_ENTRIES} entries at once, not ${entries.length}.`);
  entries.forEach((entry, i) => {
    if (/[\n\r\0]/.test(entry))
      invalid(`entries[${i}]`, "An entry may not contain a line break or a NUL character.");
    if (!entry.isWellFormed()) invalid(`entries[${i}]`, "An entry may not contain half of a surrogate pair.");
  });
}

/** Refuses an invalid stream name. */
export function checkStream(stream: string): void {
  if (!/^[\x20-\x7e]{1,512}$/.test(stream))
    invalid("stream", "The name of a stream has 1 to 512 printable ASCII characters.");
}

function invalid(field: string, message: string): never {
  throw new KhalaError("invalid_request", message, { field });
}
