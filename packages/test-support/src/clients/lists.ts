import type { TestServer } from "../servers/servers.ts";
import type { Cursor, Update } from "./clients.ts";

/** A document as HTTP shows it. */
export interface Document {
  readonly doc_key: string;
  readonly doc_version: string;
  readonly payload: unknown;
  readonly payload_hash: string;
}

interface Page {
  readonly documents: readonly Document[];
  readonly cursor: { readonly epoch: string; readonly watermark: string };
  readonly next: string | null;
}

/** One page of a list. */
export async function listPage(server: TestServer, token: string, topic: string, query = ""): Promise<Page> {
  const response = await server.request(`/sync/v1/list/${topic}?${query}`, token);
  if (response.status !== 200)
    throw new Error(`The list failed with ${response.status}: ${await response.text()}`);
  return (await response.json()) as Page;
}

/** All pages of a list. The cursor is the first page's: changes after it are repeated by the replay. */
export async function listAll(server: TestServer, token: string, topic: string) {
  const documents: Document[] = [];
  let page = await listPage(server, token, topic, "limit=1000");
  const { cursor } = page;
  documents.push(...page.documents);
  while (page.next) {
    page = await listPage(server, token, topic, `limit=1000&after=${page.next}`);
    documents.push(...page.documents);
  }
  return { documents, cursor, versions: versionsOf(documents) };
}

/** Document keys and their versions. */
export function versionsOf(documents: readonly Document[]): Map<string, string> {
  return new Map(documents.map(({ doc_key, doc_version }) => [doc_key, doc_version]));
}

/** Applies updates as a client does, and checks their order. */
export function applyUpdates(state: Map<string, string>, updates: readonly Update[], after = 0n): bigint {
  const versions = new Map<string, bigint>();
  let last = after;
  for (const { doc_key, doc_version, op, watermark } of updates) {
    const name = `${doc_key} version ${doc_version} at ${watermark}`;
    if (BigInt(watermark) <= last) throw new Error(`${name} came after ${last}.`);
    last = BigInt(watermark);
    if (BigInt(doc_version) <= (versions.get(doc_key) ?? 0n))
      throw new Error(`${name} came after a newer version.`);
    versions.set(doc_key, BigInt(doc_version));
    if (BigInt(doc_version) < BigInt(state.get(doc_key) ?? 0)) continue;
    if (op === "delete") state.delete(doc_key);
    else state.set(doc_key, doc_version);
  }
  return last;
}

/** The watermark of a cursor; proto3 leaves out zeros. */
export function watermarkOf(cursor: Cursor | undefined): bigint {
  return BigInt(cursor?.watermark ?? 0);
}
