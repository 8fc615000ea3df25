const DEEPEST = 32;
/** A character may be written as six: `\u0001`. */
const MOST_PER_CHARACTER = 6;
const MOST_PER_NUMBER = 25;
const NONE = -1;

/**
 * Whether the JSON of a value surely has no more bytes than this. False for what takes a closer look: what has no JSON, is
 * nested deep, or has text that not every engine can store. Most payloads do not, and to write them out only to count is dear.
 */
export function surelyFits(value: unknown, bytes: number): boolean {
  return left(value, bytes, 0) >= 0;
}

/** What is left of so many bytes after a value, at least; negative if it takes a closer look. */
function left(value: unknown, bytes: number, depth: number): number {
  switch (typeof value) {
    case "string":
      return leftByText(value, bytes);
    case "number":
      return Number.isFinite(value) ? bytes - MOST_PER_NUMBER : NONE;
    case "boolean":
      return bytes - 5;
    case "object":
      if (value === null) return bytes - 4;
      if (depth === DEEPEST) return NONE;
      return Array.isArray(value) ? leftByArray(value, bytes, depth) : leftByObject(value, bytes, depth);
    default:
      return NONE;
  }
}

function leftByText(text: string, bytes: number): number {
  return text.isWellFormed() && !text.includes("\0") ? bytes - MOST_PER_CHARACTER * text.length - 2 : NONE;
}

function leftByArray(array: readonly unknown[], bytes: number, depth: number): number {
  let rest = bytes - 2;
  for (let i = 0; i < array.length && rest >= 0; i++) rest = left(array[i], rest - 1, depth + 1);
  return rest;
}

function leftByObject(object: object, bytes: number, depth: number): number {
  if (Object.getPrototypeOf(object) !== Object.prototype) return NONE;
  let rest = bytes - 2;
  for (const key of Object.keys(object)) {
    const member: unknown = object[key as keyof typeof object];
    if (member !== undefined) rest = left(member, leftByText(key, rest) - 2, depth + 1);
    if (rest < 0) return NONE;
  }
  return rest;
}
