import { KhalaError } from "@khala/contracts";
import type { FailedStreamJson, ParityJson } from "@khala/contracts/ops/v1";
import { hasScopeFor, notFound, orgOf, requireScope } from "../../../access/access.ts";
import type { Database } from "../../../database/database.ts";
import { isKeyOf } from "../../../sync/model.ts";
import {
  describeTopics,
  documentHistory,
  searchDocuments,
  type TopicsOptions,
} from "../../../sync/read/inspect.ts";
import { type FailedStreamReport, listFailedStreams } from "../../../sync/write/failed_streams.ts";
import type { Http } from "../http.ts";
import { pageAfter, queryOf, readAfter, readLimit, readText } from "../read_request.ts";

export interface OpsSyncOptions extends TopicsOptions {
  readonly database: Database;
  /** The largest payload in a history. */
  readonly payloadBytes: number;
  readonly parity: Parity;
}

const MAX_SEARCH = 200;

/** Comparison with the mirror: the last report, and a new one. */
export interface Parity {
  state(): Promise<ParityJson>;
  compare(): Promise<ParityJson>;
}

/** `/ops/v1/sync`: topics, documents by key, their history, parity. */
export function opsSyncRoutes(http: Http, options: OpsSyncOptions): void {
  const { database, models } = options;

  http.route("server.observe", "GET", "/ops/v1/topics", async () => ({
    topics: await describeTopics(options),
  }));

  http.route("failed_stream.read", "GET", "/ops/v1/failed-streams{?limit,after}", async (viewer, request) => {
    const query = queryOf(request);
    const limit = readLimit(query.limit);
    const place = readPlace(query.after);
    const found = await listFailedStreams(
      database,
      models.all.map(({ topic }) => topic),
      {
        org: orgOf(viewer, "failed_stream.read"),
        after: place,
        limit: limit + 1,
      },
    );
    const streams = found.slice(0, limit);
    const last = found.length > limit ? streams.at(-1) : undefined;
    return {
      streams: streams.map(failedStreamJson),
      ...pageAfter(last && `${last.position} ${last.topic}`),
    };
  });

  http.route(
    "org.inspect",
    "GET",
    "/ops/v1/documents{?topic,search,limit,after}",
    async (viewer, request) => {
      const query = queryOf(request);
      const topic = readText(query.topic, "topic", MAX_SEARCH);
      if (!topic)
        throw new KhalaError("invalid_request", "topic is missing. Send the topic of the documents.", {
          field: "topic",
        });
      requireScope(viewer, "document.read", { topic });
      const model = models.byTopic(topic);
      if (!model) throw new KhalaError("not_found", `There is no topic "${topic}".`, { field: "topic" });
      const { documents, next } = await searchDocuments(database, model, viewer, {
        search: readText(query.search, "search", MAX_SEARCH) ?? "",
        after: readAfter(query.after),
        limit: readLimit(query.limit),
      });
      return { documents, ...pageAfter(next) };
    },
  );

  http.route("org.inspect", "GET", "/ops/v1/history/:doc_key{?limit}", async (viewer, request) => {
    const { doc_key } = request.params as { doc_key: string };
    const { limit } = queryOf(request);
    const bounds = { limit: readLimit(limit), payloadBytes: options.payloadBytes };
    const model = models.byKey(doc_key);
    // The same answer for what does not exist and what the caller may not see.
    const visible =
      model && isKeyOf(model, doc_key) && hasScopeFor(viewer, "document.read", { topic: model.topic });
    const entries = visible ? await documentHistory(database, model, doc_key, viewer, bounds) : undefined;
    if (!entries) throw notFound("document", doc_key);
    return { entries };
  });

  http.route("server.inspect", "GET", "/ops/v1/parity", async () => options.parity.state());

  http.route("mirror.compare", "POST", "/ops/v1/parity", async (_viewer, _request, reply) => {
    return reply.send(await options.parity.compare());
  });
}

function failedStreamJson(stream: FailedStreamReport): FailedStreamJson {
  const { topic, org, kind, streamId, seq, position, error, failedAt } = stream;
  return {
    topic,
    org_id: org,
    kind,
    stream_id: streamId,
    seq: String(seq),
    position: String(position),
    error,
    failed_at: failedAt.toISOString(),
  };
}

/** The position and topic after which a page begins: one event may fail in several topics. */
function readPlace(sent: unknown): { readonly position: bigint; readonly topic: string } {
  const [, position = "0", topic = ""] = /^(\d{1,18}) ([\w.]+)$/.exec(readAfter(sent)) ?? [];
  return { position: BigInt(position), topic };
}
