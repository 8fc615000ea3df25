import {
  type DescMessage,
  fromBinary,
  fromJson,
  type JsonValue,
  type MessageShape,
} from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import type { FastifyRequest } from "fastify";
import { wrongField } from "./wrong_field.ts";

/** The size of a body, which most requests have in a header. */
export function bodyBytes({ headers, body }: Pick<FastifyRequest, "headers" | "body">): number {
  return Number(headers["content-length"]) || Buffer.byteLength(JSON.stringify(body) ?? "");
}

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;

/** Reads `limit`: 100 by default, at most 1,000. */
export function readLimit(sent: unknown): number {
  if (sent === undefined) return DEFAULT_LIMIT;
  const limit = typeof sent === "string" && /^\d{1,4}$/.test(sent) ? Number(sent) : 0;
  if (limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new KhalaError("invalid_request", `limit must be a whole number from 1 to ${MAX_LIMIT}.`, {
    field: "limit",
  });
}

/** Reads where a page begins, as `pageAfter` wrote it; empty for the first. */
export function readAfter(sent: unknown): string {
  if (sent === undefined || sent === "") return "";
  if (typeof sent === "string" && /^[A-Za-z0-9_-]{1,1000}$/.test(sent)) {
    const after = Buffer.from(sent, "base64url").toString();
    // A database's texts hold no NUL.
    if (!after.includes("\0")) return after;
  }
  throw new KhalaError("invalid_request", "after must be the unchanged `next` of the previous page.", {
    field: "after",
  });
}

/** The start of the next page, for clients to send back. */
export function pageAfter(place: string | undefined): { next?: string } {
  return place === undefined ? {} : { next: Buffer.from(place).toString("base64url") };
}

/** Refuses a query with other parameters than these. */
export function checkQuery(sent: unknown, names: readonly string[]): void {
  const unknown = Object.keys(sent ?? {}).find((name) => !names.includes(name));
  if (unknown === undefined) return;
  const field = unknown.slice(0, 100);
  const known = names.length > 0 ? `Known parameters: ${names.join(", ")}.` : "This route has no parameters.";
  const message = `There is no parameter ${JSON.stringify(field)}. ${known}`;
  throw new KhalaError("invalid_request", message, { field });
}

/** The query of a request, whose route names its parameters. */
export function queryOf({ query }: Pick<FastifyRequest, "query">): Readonly<Record<string, unknown>> {
  return (query ?? {}) as Readonly<Record<string, unknown>>;
}

/** Reads a text of a query that is sent once, or not at all. */
export function readText(sent: unknown, field: string, max: number): string | undefined {
  if (sent === undefined) return undefined;
  if (typeof sent === "string" && sent.length <= max && !sent.includes("\0")) return sent;
  throw new KhalaError("invalid_request", `${field} must be one string of at most ${max} characters.`, {
    field,
  });
}

/** Reads a message that a client sent, as JSON or as protobuf; throws invalid_request with the field that is wrong. */
export function readMessage<S extends DescMessage>(
  schema: S,
  sent: unknown,
  options: { readonly ignoreUnknownFields?: boolean } = {},
): MessageShape<S> {
  try {
    return sent instanceof Uint8Array
      ? fromBinary(schema, sent)
      : fromJson(schema, (sent ?? {}) as JsonValue, options);
  } catch (cause) {
    // The library's message may repeat the value, which may be long.
    const reason = (cause as Error).message.slice(0, 300);
    const isBinary = sent instanceof Uint8Array;
    const field = isBinary ? "" : wrongField(schema, sent, options.ignoreUnknownFields);
    const message = `This is not a valid ${schema.name}: ${reason}.`;
    throw new KhalaError("invalid_request", message, field ? { field } : {}, { cause });
  }
}
