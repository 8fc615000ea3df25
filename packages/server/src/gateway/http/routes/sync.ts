import { KhalaError } from "@khala/contracts";
import { hasScopeFor, notFound } from "../../../access/access.ts";
import type { Database } from "../../../database/database.ts";
import type { Models } from "../../../sync/model.ts";
import { followedRights, viewerEpoch } from "../../../sync/read/cursor.ts";
import { listDocuments } from "../../../sync/read/list.ts";
import { findDocument, type StoredDocument } from "../../../sync/read/read_models.ts";
import { rightsFingerprint } from "../../auth/claims.ts";
import { isKnown } from "../etag.ts";
import type { Handler, Http } from "../http.ts";
import { readList } from "../list_query.ts";

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
    if (isKnown(request, etag)) return reply.code(304).send();
    return reply.type("application/json").send(documentJson(found));
  });

  const list: Handler = async (viewer, request, reply) => {
    const { collection } = request.params as { collection: string };
    const model = models.byTopic(collection);
    if (!model)
      throw new KhalaError("not_found", `There is no collection "${collection}".`, { field: "collection" });
    const { query, part, limit, after, nextOf } = readList(model, request.query);
    const page = await listDocuments(database, model, viewer, query, {
      after,
      limit,
      maxBytes: MAX_LIST_BYTES,
    });
    const next = page.next ? nextOf(page.next) : null;
    const epoch = viewerEpoch(page.epoch, followedRights(rightsFingerprint(viewer), part));
    const body = `{"documents":[${page.documents.map(documentJson).join(",")}],"cursor":{"epoch":"${epoch}","watermark":"${page.watermark}"},"next":${JSON.stringify(next)}}`;
    return reply.type("application/json").send(body);
  };
  http.route("document.read", "GET", "/sync/v1/list/:collection{?*}", list, {
    target: (request) => ({ topic: (request.params as { collection: string }).collection }),
  });
}

function documentJson({ docKey, docVersion, payload, payloadHash, updatedAt }: StoredDocument): string {
  const head = `{"doc_key":${JSON.stringify(docKey)},"doc_version":"${docVersion}","payload":${payload}`;
  return `${head},"payload_hash":"${payloadHash}","updated_at":"${updatedAt.toISOString()}"}`;
}

/** Whether the database can be asked for it: its texts hold no NUL. */
function isKey(text: string): boolean {
  return !text.includes("\0");
}
