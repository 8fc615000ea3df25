import { KhalaError } from "@khala/contracts";
import type { ParityJson } from "@khala/contracts/ops/v1";
import type { Database } from "../../../database/database.ts";
import { isKeyOf } from "../../../sync/model.ts";
import {
  describeTopics,
  documentHistory,
  searchDocuments,
  type TopicsOptions,
} from "../../../sync/read/inspect.ts";
import { hasScope, requireTopic } from "../../auth/claims.ts";
import { type Http, requireOperator } from "../http.ts";
import { pageAfter, readAfter, readLimit, readText } from "../read_request.ts";

export interface OpsSyncOptions extends TopicsOptions {
  readonly database: Database;
  /** A payload that is larger is left out of a history. */
  readonly payloadBytes: number;
  readonly parity: Parity;
}

const MAX_SEARCH = 200;

/** Comparison with the second sink: the last report, and a new one. */
export interface Parity {
  state(): Promise<ParityJson>;
  compare(): Promise<ParityJson>;
}

/** `/ops/v1/sync`: topics, documents by key, their history, parity. */
export function opsSyncRoutes(http: Http, options: OpsSyncOptions): void {
  const { app } = http;
  const { database, models } = options;

  app.get("/ops/v1/topics", async (request, reply) => {
    await requireOperator(http, request);
    return reply.header("Cache-Control", "no-store").send({ topics: await describeTopics(options) });
  });

  app.get("/ops/v1/documents", async (request, reply) => {
    const viewer = await requireOperator(http, request);
    const query = request.query as Record<string, unknown>;
    const topic = readText(query.topic, "topic", MAX_SEARCH);
    if (!topic) throw new KhalaError("invalid_request", "topic says whose documents.", { field: "topic" });
    requireTopic(viewer, topic);
    const model = models.byTopic(topic);
    if (!model) throw new KhalaError("not_found", `There is no topic "${topic}".`, { field: "topic" });
    const { documents, next } = await searchDocuments(database, model, viewer, {
      search: readText(query.search, "search", MAX_SEARCH) ?? "",
      after: readAfter(query.after),
      limit: readLimit(query.limit),
    });
    return reply.header("Cache-Control", "no-store").send({ documents, ...pageAfter(next) });
  });

  app.get("/ops/v1/history/:doc_key", async (request, reply) => {
    const viewer = await requireOperator(http, request);
    const { doc_key } = request.params as { doc_key: string };
    const { limit } = request.query as { limit?: unknown };
    const bounds = { limit: readLimit(limit), payloadBytes: options.payloadBytes };
    const model = models.byKey(doc_key);
    // The same answer for what does not exist and what the caller may not see.
    const visible = model && isKeyOf(model, doc_key) && hasScope(viewer, model.topic);
    const entries = visible ? await documentHistory(database, model, doc_key, viewer, bounds) : undefined;
    if (!entries) {
      const message = `There is no document "${doc_key.slice(0, 200)}", or it is not yours to see.`;
      throw new KhalaError("not_found", message);
    }
    return reply.header("Cache-Control", "no-store").send({ entries });
  });

  app.get("/ops/v1/parity", async (request, reply) => {
    await requireOperator(http, request);
    return reply.header("Cache-Control", "no-store").send(await options.parity.state());
  });

  app.post("/ops/v1/parity", async (request, reply) => {
    await requireOperator(http, request);
    return reply.header("Cache-Control", "no-store").send(await options.parity.compare());
  });
}
