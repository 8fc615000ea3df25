import { KhalaError } from "@khala/contracts";
import { hasScopeFor, notFound } from "../../../access/access.ts";
import type { Database } from "../../../database/database.ts";
import type { Models } from "../../../sync/model.ts";
import { viewerEpoch } from "../../../sync/read/cursor.ts";
import { findDocument, listDocuments, type StoredDocument } from "../../../sync/read/read_models.ts";
import { rightsFingerprint } from "../../auth/claims.ts";
import type { Handler, Http } from "../http.ts";

const DEFAULT_LIMIT = 100;
const MAX_LIMIT = 1_000;
const MAX_LIST_BYTES = 8 << 20;

/** `GET /sync/v1/doc/:doc_key` and `GET /sync/v1/list/:collection`. */
export function syncRoutes(http: Http, { database, models }: { database: Database; models: Models }): void {
  http.route("document.read", "GET", "/sync/v1/doc/:doc_key", async (viewer, request, reply) => {
    const { doc_key } = request.params as { doc_key: string };
    const model = isKey(doc_key) ? models.byKey(doc_key) : undefined;
    // The same answer for what does not exist and what the caller may not see.
    const found =
      model && hasScopeFor(viewer, "document.read", { topic: model.topic })
        ? await findDocument(database, model, doc_key, viewer)
        : undefined;
    if (!found) throw notFound("document", doc_key);
    const etag = `"${found.payloadHash}"`;
    reply.header("ETag", etag).header("Cache-Control", "private, no-cache");
    if (matches(request.headers["if-none-match"], etag)) return reply.code(304).send();
    return reply.type("application/json").send(documentJson(found));
  });

  const list: Handler = async (viewer, request, reply) => {
    const { collection } = request.params as { collection: string };
    const model = models.byTopic(collection);
    if (!model)
      throw new KhalaError("not_found", `There is no collection "${collection}".`, { field: "collection" });
    const query = request.query as { limit?: string; after?: string };
    const limit = readLimit(query.limit);
    const after = readAfter(query.after);
    const page = await listDocuments(database, model, viewer, {
      after,
      limit,
      maxBytes: MAX_LIST_BYTES,
    });
    const next = page.hasMore ? Buffer.from(page.documents.at(-1)!.docKey).toString("base64url") : null;
    const epoch = viewerEpoch(page.epoch, rightsFingerprint(viewer));
    const body = `{"documents":[${page.documents.map(documentJson).join(",")}],"cursor":{"epoch":"${epoch}","watermark":"${page.watermark}"},"next":${JSON.stringify(next)}}`;
    return reply.header("Cache-Control", "no-store").type("application/json").send(body);
  };
  http.route("document.read", "GET", "/sync/v1/list/:collection", list, {
    target: (request) => ({ topic: (request.params as { collection: string }).collection }),
  });
}

function documentJson({ docKey, docVersion, payload, payloadHash, updatedAt }: StoredDocument): string {
  const head = `{"doc_key":${JSON.stringify(docKey)},"doc_version":"${docVersion}","payload":${payload}`;
  return `${head},"payload_hash":"${payloadHash}","updated_at":"${updatedAt.toISOString()}"}`;
}

function readLimit(text: string | undefined): number {
  if (text === undefined) return DEFAULT_LIMIT;
  const limit = Number(text);
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_LIMIT) return limit;
  throw new KhalaError("invalid_request", `limit is a whole number from 1 to ${MAX_LIMIT}.`, {
    field: "limit",
  });
}

function readAfter(text: string | undefined): string {
  const after = text ? Buffer.from(text, "base64url").toString() : "";
  if (isKey(after)) return after;
  throw new KhalaError("invalid_request", "after is the `next` of the page before, unchanged.", {
    field: "after",
  });
}

/** Whether the database can be asked for it: its texts hold no NUL. */
function isKey(text: string): boolean {
  return !text.includes("\0");
}

function matches(header: string | undefined, etag: string): boolean {
  if (!header) return false;
  return header
    .split(",")
    .some((candidate) => candidate.trim().replace(/^W\//, "") === etag || candidate.trim() === "*");
}
