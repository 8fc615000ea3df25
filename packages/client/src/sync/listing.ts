import type { Wire } from "@khala/contracts";
import type { DocumentListJson } from "@khala/contracts/sync/v1";
import type { Http } from "../http.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { storedOf, type WireDocument } from "./fetching.ts";

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
      const stored = storedOf(document);
      documents.set(stored.key, stored);
    }
    after = page.next ?? undefined;
  } while (after !== undefined || !first);
  return { documents: [...documents.values()], cursor: first };
}

/** A cursor of the wire; proto3 leaves out zeros. */
export function cursorOf({
  epoch = "",
  watermark = "0",
}: {
  epoch?: string;
  watermark?: string;
} = {}): Cursor {
  return { epoch, watermark };
}
