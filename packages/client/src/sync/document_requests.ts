import { KhalaError, type Wire } from "@khala/contracts";
import type { DocumentJson, DocumentListJson } from "@khala/contracts/sync/v1";
import type { Http } from "../http.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { cursorOf } from "./cursor.ts";
import { topicAndQuery } from "./lists.ts";
import type { Item } from "./plane_port.ts";

/** A document as the HTTP routes return it. */
export type WireDocument = Omit<Wire<DocumentJson>, "payload"> & { readonly payload?: unknown };

/** Converts a document from HTTP to its stored form. */
export function toStored(document: WireDocument): StoredDocument {
  const {
    doc_key: key = "",
    doc_version: version = "0",
    payload_hash: hash = "",
    payload,
    updated_at,
  } = document;
  return { key, version, hash, payload, ...(updated_at !== undefined && { updatedAt: updated_at }) };
}

/** The route of a document. */
export const pathOf = (key: string) => `/sync/v1/doc/${encodeURIComponent(key)}`;

/** Reads one document; undefined when it does not exist or the token may not see it. */
export async function readDocument(
  http: Http,
  key: string,
  signal: AbortSignal | undefined,
): Promise<Item | undefined> {
  try {
    const { body } = await http.request("GET", pathOf(key), signal ? { signal } : {});
    const { version, payload, updatedAt } = toStored(body as WireDocument);
    return { key, version, data: payload, ...(updatedAt !== undefined && { updatedAt }) };
  } catch (error) {
    if (error instanceof KhalaError && error.code === "not_found") return undefined;
    throw error;
  }
}

/** The documents of a topic, and the position to follow it from. */
export interface Listing {
  readonly documents: readonly StoredDocument[];
  readonly cursor: Cursor;
}

interface Page extends Omit<Wire<DocumentListJson>, "documents" | "next"> {
  readonly documents?: readonly WireDocument[];
  readonly next?: string | null;
}

const PAGE = 1_000;

/** Reads all pages of a topic, or of a part of it. */
export async function listTopic(http: Http, name: string, signal: AbortSignal): Promise<Listing> {
  const { topic, query: part } = topicAndQuery(name);
  const documents = new Map<string, StoredDocument>();
  let first: Cursor | undefined;
  let after: string | undefined;
  do {
    const query = { ...part, limit: PAGE, after };
    const answer = await http.request("GET", `/sync/v1/list/${encodeURIComponent(topic)}`, { query, signal });
    const page = answer.body as Page;
    const cursor = cursorOf(page.cursor);
    if (first && cursor.epoch !== first.epoch) {
      // The epoch or the access rights changed: earlier pages are no longer valid.
      documents.clear();
      first = undefined;
      after = undefined;
      continue;
    }
    first ??= cursor;
    for (const document of page.documents ?? []) {
      const stored = toStored(document);
      documents.set(stored.key, stored);
    }
    after = page.next ?? undefined;
  } while (after !== undefined || !first);
  return { documents: [...documents.values()], cursor: first };
}
