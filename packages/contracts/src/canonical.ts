import { KhalaError } from "./errors.ts";

/** What JSON can say. */
export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/** Arrays and objects may be nested this deep; deeper is refused, and so is a cycle. */
export const MAX_NESTING = 128;

const MAX_PATH = 200;
/** Up to this many keys an insertion sort beats the built-in sort. */
const FEW_KEYS = 16;
/** Anything but the characters that stand for themselves: controls, quote, backslash, surrogates. */
const NOT_PLAIN = /[^ !#-[\]-\ud7ff\ue000-\uffff]/;
/** A surrogate that is not half of a pair: the `u` flag makes pairs one character. */
const LONE_SURROGATE = /[\ud800-\udfff]/u;
const IDENTIFIER = /^[A-Za-z_$][\w$]*$/;

/** The keys and indexes that lead to a value. */
export type Path = (string | number)[];

/** The one text of a JSON value (RFC 8785): equal values give equal bytes, and so equal hashes. */
export function canonicalJson(value: unknown): string {
  return write(value, [], 0);
}

function write(value: unknown, path: Path, depth: number): string {
  switch (typeof value) {
    case "string":
      return quote(value, path, depth);
    case "number":
      // ECMAScript's own number format is the one of RFC 8785; it also turns -0 into 0.
      if (!Number.isFinite(value)) throw refusal(`${value} is not a JSON number`, path, depth);
      return `${value}`;
    case "boolean":
      return value ? "true" : "false";
    case "object":
      if (value === null) return "null";
      if (depth >= MAX_NESTING) throw refusal(`nested deeper than ${MAX_NESTING} levels`, path, depth);
      return Array.isArray(value) ? writeArray(value, path, depth) : writeObject(value, path, depth);
    default:
      throw refusal(`${typeof value} has no JSON form`, path, depth);
  }
}

function writeArray(array: readonly unknown[], path: Path, depth: number): string {
  let text = "[";
  for (let index = 0; index < array.length; index++) {
    path[depth] = index;
    if (index > 0) text += ",";
    text += write(array[index], path, depth + 1);
  }
  return `${text}]`;
}

function writeObject(object: object, path: Path, depth: number): string {
  if (!isPlain(object)) {
    throw refusal(`${object.constructor?.name ?? "this object"} is not a plain object`, path, depth);
  }
  let text = "{";
  for (const key of sortKeys(Object.keys(object))) {
    const member = object[key];
    if (member === undefined) continue;
    path[depth] = key;
    if (text.length > 1) text += ",";
    text += `${quote(key, path, depth + 1)}:${write(member, path, depth + 1)}`;
  }
  return `${text}}`;
}

/** Orders by UTF-16 code units, as RFC 8785 asks and as both `>` and the default sort do. */
function sortKeys(keys: string[]): string[] {
  if (keys.length > FEW_KEYS) return keys.sort();
  for (let sorted = 1; sorted < keys.length; sorted++) {
    const key = keys[sorted]!;
    let at = sorted;
    for (; at > 0 && keys[at - 1]! > key; at--) keys[at] = keys[at - 1]!;
    keys[at] = key;
  }
  return keys;
}

function quote(text: string, path: Path, depth: number): string {
  if (!NOT_PLAIN.test(text)) return `"${text}"`;
  if (LONE_SURROGATE.test(text)) throw refusal("a lone surrogate is not Unicode text", path, depth);
  return JSON.stringify(text);
}

/** Also true of plain objects of another realm, such as a frame or a VM context. */
function isPlain(object: object): object is Record<string, unknown> {
  const prototype: unknown = Object.getPrototypeOf(object);
  return prototype === Object.prototype || prototype === null || Object.getPrototypeOf(prototype) === null;
}

function refusal(reason: string, path: Path, depth: number): KhalaError {
  if (depth === 0)
    return new KhalaError("invalid_request", `The value cannot be written as JSON: ${reason}.`);
  const field = fieldOf(path.slice(0, depth));
  return new KhalaError("invalid_request", `${field} cannot be written as JSON: ${reason}.`, { field });
}

/** `a.b[3]`; a key that is not an identifier is quoted: `a["b c"]`. */
export function fieldOf(path: readonly (string | number)[]): string {
  let text = "";
  for (const step of path) {
    if (typeof step === "number") text += `[${step}]`;
    else if (IDENTIFIER.test(step)) text += text === "" ? step : `.${step}`;
    else text += `[${JSON.stringify(step)}]`;
  }
  // Keys come from outside, so a path is cut; a cut must not leave half of a pair at the end.
  return text.length <= MAX_PATH ? text : `${text.slice(0, MAX_PATH).replace(/[\ud800-\udbff]$/, "")}…`;
}
