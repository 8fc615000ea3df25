import type {
  AboutJson,
  AppJson,
  AuditListJson,
  DocumentHistoryJson,
  DocumentListJson,
  ErrorListJson,
  FailedRunListJson,
  FailedStreamListJson,
  OrgConversationListJson,
  OverviewHistoryJson,
  OverviewJson,
  ParityJson,
  QuotaListJson,
  SettingListJson,
  SocketListJson,
  TopicListJson,
  TraceJson,
  TraceListJson,
} from "@khala/contracts/ops/v1";
import type { Connection } from "../connection/port.ts";
import type { Http, RequestOptions } from "../http.ts";
import { type LiveOverview, type OverviewSources, openLiveOverview } from "./live_overview.ts";

export interface DocumentFilter {
  readonly topic: string;
  /** A part of the key or of the content. */
  readonly search?: string;
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
}

export interface AuditFilter {
  /** Such as `dead_letter.replay`. */
  readonly action?: string;
  readonly subject?: string;
  readonly limit?: number;
  /** `next` of the page before. */
  readonly after?: string;
}

/** Operations of a server. Needs the scope `ops`; documents need their topic's scope too. */
export interface Ops {
  /** Version and features; public. */
  about(): Promise<AboutJson>;
  /** The app that the server serves, with requests to try. */
  app(): Promise<AppJson>;
  overview(): Promise<OverviewJson>;
  /** The load of the last hour. */
  overviewHistory(): Promise<OverviewHistoryJson>;
  /** The overview each second, while there is a subscriber. */
  readonly live: LiveOverview;
  topics(): Promise<TopicListJson>;
  documents(filter: DocumentFilter): Promise<DocumentListJson>;
  /** Versions of a document, newest first, as far back as the journal reaches. */
  history(docKey: string): Promise<DocumentHistoryJson>;
  sockets(): Promise<SocketListJson>;
  conversations(options?: {
    readonly limit?: number;
    readonly after?: string;
  }): Promise<OrgConversationListJson>;
  /** Exceptions that ended runs; or the one with an error id that an end user reported. */
  failedRuns(options?: {
    readonly error_id?: string;
    readonly limit?: number;
    readonly after?: string;
  }): Promise<FailedRunListJson>;
  /** Streams that a model failed at, with what it threw, oldest first. */
  failedStreams(options?: {
    readonly limit?: number;
    readonly after?: string;
  }): Promise<FailedStreamListJson>;
  parity(): Promise<ParityJson>;
  /** Compares every document with the mirror; a long comparison continues after the answer. */
  compareParity(): Promise<ParityJson>;
  errors(): Promise<ErrorListJson>;
  /** Development only. */
  traces(options?: { readonly limit?: number; readonly correlation_id?: string }): Promise<TraceListJson>;
  trace(traceId: string): Promise<TraceJson>;
  /** The audit log, newest first. */
  audit(filter?: AuditFilter): Promise<AuditListJson>;
  /** The org's use of its quotas; for the platform that of every org, or of one. */
  quotas(options?: { readonly org?: string }): Promise<QuotaListJson>;
  /** The effective settings, secrets hidden. */
  config(): Promise<SettingListJson>;
}

/** The operations of a client. */
export function openOps(
  connection: Connection,
  http: Http,
  { shared = connection, environment }: Pick<OverviewSources, "environment"> & Partial<OverviewSources>,
): Ops {
  async function ask<T>(path: readonly string[], query?: RequestOptions["query"]): Promise<T> {
    const address = `/ops/v1/${path.map(encodeURIComponent).join("/")}`;
    // The server answers with the shapes of the same protos.
    return (await http.request("GET", address, query && { query })).body as T;
  }
  return {
    about: () => ask(["about"]),
    app: () => ask(["app"]),
    overview: () => ask(["overview"]),
    overviewHistory: () => ask(["overview", "history"]),
    live: openLiveOverview({ connection, shared, environment, ask: () => ask<OverviewJson>(["overview"]) }),
    topics: () => ask(["topics"]),
    documents: (filter) => ask(["documents"], { ...filter }),
    history: (docKey) => ask(["history", docKey]),
    sockets: () => ask(["sockets"]),
    conversations: (options) => ask(["conversations"], { ...options }),
    failedRuns: (options) => ask(["failed-runs"], { ...options }),
    failedStreams: (options) => ask(["failed-streams"], { ...options }),
    parity: () => ask(["parity"]),
    compareParity: async () =>
      (await http.request("POST", "/ops/v1/parity", { body: {} })).body as ParityJson,
    errors: () => ask(["errors"]),
    traces: (options) => ask(["traces"], { ...options }),
    trace: (traceId) => ask(["traces", traceId]),
    audit: (filter) => ask(["audit"], { ...filter }),
    quotas: (options) => ask(["quotas"], { ...options }),
    config: () => ask(["config"]),
  };
}
