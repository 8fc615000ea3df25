import { KhalaError } from "@khala/contracts";

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * The stored form of a JSON body: one value, or the elements of an array, separated by commas. Keeps the original text,
 * so that numbers with more digits than a double are returned unchanged.
 */
export function storedMessages(body: Buffer): Buffer {
  const text = readText(body).trim();
  const value = parse(text);
  if (!Array.isArray(value)) return Buffer.from(text);
  return value.length === 0 ? Buffer.alloc(0) : Buffer.from(text.slice(1, -1).trim());
}

/** Stored messages as a JSON array, for readers. */
export function messageArray(stored: Buffer): Buffer {
  return Buffer.concat([Buffer.from("["), stored, Buffer.from("]")]);
}

/** The length in bytes of the first messages; undefined when there are fewer. */
export function messagesLength(stored: Buffer, count: bigint): bigint | undefined {
  let seen = 0n;
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < stored.length; at++) {
    const char = String.fromCharCode(stored[at]!);
    if (quoted) {
      if (char === "\\") at++;
      else if (char === '"') quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === "{" || char === "[") depth++;
    else if (char === "}" || char === "]") depth--;
    else if (char === "," && depth === 0 && ++seen === count) return BigInt(at);
  }
  return stored.length > 0 && seen + 1n === count ? BigInt(stored.length) : undefined;
}

function readText(body: Buffer): string {
  try {
    return decoder.decode(body);
  } catch (cause) {
    throw new KhalaError("invalid_request", "The body is not UTF-8. Send JSON as UTF-8.", {}, { cause });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message =
      "The body is not JSON, but this stream has JSON messages. Send one value, or an array of values.";
    throw new KhalaError("invalid_request", message, {}, { cause });
  }
}
