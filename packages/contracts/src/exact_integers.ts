import { fieldOf, MAX_NESTING, type Path } from "./canonical.ts";
import { KhalaError } from "./errors.ts";

/** What is wrong with an integer that a double cannot hold, after the name of its field. */
export const INEXACT_INTEGER =
  "is an integer beyond ±9007199254740991, which would be rounded; send it as a string";

/** Sixteen digits where a number may begin; nearly no text has them, so nearly none is scanned. */
const LONG_NUMBER = /(?:^|[[:,\s-])\d{16}/;
const NUMBER = /[-+.\deE]+/y;
const INTEGER = /^-?\d+$/;
/** From here on JavaScript writes an exponent, so no reader takes the number for an exact integer. */
const EXPONENT_FROM = 1e21;

/** The path of the first integer in valid JSON text that JSON.parse rounds; undefined when there is none. */
export function inexactInteger(text: string): string | undefined {
  if (!LONG_NUMBER.test(text)) return undefined;
  // One step per open array (an index) or object (a key). A loop, because text may be nested without bounds.
  const path: Path = [];
  let key = "";
  for (let at = 0; at < text.length; at++) {
    const char = text[at]!;
    if (char === '"') {
      const end = endOfString(text, at);
      key = text.slice(at, end + 1);
      at = end;
    } else if (char === ":") path[path.length - 1] = JSON.parse(key);
    else if (char === "[") path.push(0);
    else if (char === "{") path.push("");
    else if (char === "]" || char === "}") path.pop();
    else if (char === ",") {
      const step = path.at(-1);
      if (typeof step === "number") path[path.length - 1] = step + 1;
    } else if (char === "-" || (char >= "0" && char <= "9")) {
      NUMBER.lastIndex = at;
      const [number] = NUMBER.exec(text)!;
      if (INTEGER.test(number) && !Number.isSafeInteger(Number(number))) return fieldOf(path);
      at += number.length - 1;
    }
  }
  return undefined;
}

/** The path of the first number in a value that JSON shows as an integer, but that may have been rounded. */
export function inexactNumber(value: unknown, path: Path = []): string | undefined {
  if (typeof value === "number") {
    const exact = !Number.isInteger(value) || Number.isSafeInteger(value) || Math.abs(value) >= EXPONENT_FROM;
    return exact ? undefined : fieldOf(path);
  }
  if (typeof value !== "object" || value === null || path.length >= MAX_NESTING) return undefined;
  const isList = Array.isArray(value);
  for (const [key, member] of Object.entries(value)) {
    path.push(isList ? Number(key) : key);
    const found = inexactNumber(member, path);
    if (found !== undefined) return found;
    path.pop();
  }
  return undefined;
}

/** The error for an integer that would be rounded. */
export function inexactIntegerError(field: string): KhalaError {
  const message = `${field || "The value"} ${INEXACT_INTEGER}.`;
  return new KhalaError("invalid_request", message, field ? { field } : {});
}

function endOfString(text: string, start: number): number {
  let end = text.indexOf('"', start + 1);
  while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end;
}

function isEscaped(text: string, at: number): boolean {
  let first = at;
  while (text[first - 1] === "\\") first--;
  return (at - first) % 2 === 1;
}
