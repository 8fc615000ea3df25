import { KhalaError, type Wire } from "@khala/contracts";
import type { DocumentJson, DocumentListJson } from "@khala/contracts/sync/v1";
import type { Http } from "../http.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { cursorOf } from "./cursor.ts";
import type { Item } from "./plane_port.ts";

/** A document as HTTP shows it. */
export type WireDocument = Omit<Wire<DocumentJson>, "payload"> & { readonly payload?: unknown };

/** How a document of HTTP is kept. */
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

/** One document as the server has it now; undefined when there is none that the token may see. */
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

/** A topic as the server lists it, and the position from which what changed meanwhile comes again. */
export interface Listing {
  readonly documents: readonly StoredDocument[];
  readonly cursor: Cursor;
}

interface Page extends Omit<Wire<DocumentListJson>, "documents" | "next"> {
  readonly documents?: readonly WireDocument[];
  readonly next?: string | null;
}

const PAGE = 1_000;

/** Reads all pages of a topic. */
export async function listTopic(http: Http, topic: string, signal: AbortSignal): Promise<Listing> {
  const documents = new Map<string, StoredDocument>();
  let first: Cursor | undefined;
  let after: string | undefined;
  do {
    const query = { limit: PAGE, after };
    const answer = await http.request("GET", `/sync/v1/list/${encodeURIComponent(topic)}`, { query, signal });
    const page = answer.body as Page;
    const cursor = cursorOf(page.cursor);
    if (first && cursor.epoch !== first.epoch) {
      // Another history, or other rights: the pages before are not true any more.
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
