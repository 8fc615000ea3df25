import { canonicalJson } from "@khala/contracts";
import {
  type AppDefinition,
  createKhala,
  type Khala,
  notifications,
  readConfig,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { pino } from "pino";
import { type Database, openDatabase } from "../../../server/src/database/database.ts";
import type { MintRequest } from "../../../server/src/gateway/auth/issuer.ts";
import type { Clock } from "../../../server/src/kit/clock.ts";
import type { Model } from "../../../server/src/sync/model.ts";
import { writeDocuments } from "../postgres/write_documents.ts";
import { checkResponse } from "./openapi_responses.ts";

/** Topics of the models that test servers have. */
export const RUNS = runSummaries.topic;
export const WORKERS = workerSummaries.topic;
export const NOTIFICATIONS = notifications.topic;

/** The key that all test servers share, so that a token of one is good on another. */
const SECRETS = `test:${Buffer.alloc(32, 7).toString("base64")}`;

export interface ServerOptions {
  readonly settings?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  readonly models?: AppDefinition["models"];
  readonly agents?: NonNullable<AppDefinition["agents"]>;
  readonly engine?: NonNullable<AppDefinition["engine"]>;
  readonly dev?: boolean;
}

/** A server in this process. Disposing of it stops it. */
export interface TestServer extends AsyncDisposable {
  readonly khala: Khala;
  readonly url: string;
  /** The Phoenix endpoint. */
  readonly socketUrl: string;
  /** A token with the scopes of every topic and of writing, unless `claims` has others. */
  token(claims?: Partial<MintRequest>): Promise<string>;
  /** An HTTP request with a token. The response must be one that /openapi.json describes. */
  request(path: string, token?: string, init?: RequestInit): Promise<Response>;
  /** Stores a document as a projection would; resolves with its watermark. */
  write(document: TestDocument): Promise<bigint | null>;
  /** The same of several of one model, in one commit. */
  writeAll(documents: readonly TestDocument[]): Promise<(bigint | null)[]>;
  /** Resolves when this server has read everything committed to a topic before. */
  caughtUp(topic: string): Promise<void>;
  /** The sum of a metric over all series that have these labels. */
  metric(name: string, labels?: Readonly<Record<string, string>>): Promise<number>;
}

/** A document to store. */
export interface TestDocument {
  readonly key: string;
  readonly version: number;
  readonly org: string;
  /** Undefined deletes it. */
  readonly payload?: object;
  readonly audience?: readonly string[];
  readonly model?: Model;
}

/** Starts a server on a database, on a free port, quiet. */
export async function startServer(databaseUrl: string, options: ServerOptions = {}): Promise<TestServer> {
  const {
    settings = {},
    clock,
    models = [runSummaries, workerSummaries, notifications],
    agents = [],
    engine,
    dev = true,
  } = options;
  const config = readConfig({
    DATABASE_URL: databaseUrl,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: SECRETS,
    KHALA_DATABASE_POOL: "5",
    // A single server needs none; tests of wakeups turn them on.
    KHALA_WAKEUPS: "off",
    ...settings,
  });
  const khala = await createKhala(
    { models, agents, ...(engine && { engine }) },
    { config, dev, ...(clock && { clock }) },
  );
  const { url } = khala;
  /** Where the checkpoints are read between which documents are written. */
  let beside: Database | undefined;

  async function writeAll(documents: readonly TestDocument[]): Promise<(bigint | null)[]> {
    beside ??= openDatabase({
      url: databaseUrl,
      poolSize: 1,
      connectTimeoutMs: 60_000,
      log: pino({ level: "silent" }),
    });
    const [{ model = runSummaries } = {}] = documents;
    const writes = documents.map(({ key, version, org, payload, audience }) => ({
      docKey: key,
      docVersion: BigInt(version),
      op: payload ? ("upsert" as const) : ("delete" as const),
      ...(payload && { payload: canonicalJson(payload) }),
      org,
      audience: audience ?? null,
    }));
    const written = await writeDocuments(beside, khala.sync.sink, model, writes);
    return written.map(({ watermark }) => watermark);
  }

  return {
    khala,
    url,
    socketUrl: `${url.replace("http", "ws")}/socket`,
    async token(claims = {}) {
      const scopes = [...models.map(({ topic }) => topic), "runtime:write"];
      const minted = await khala.auth.issuer!.mint({ sub: "user-1", org_id: "org-1", scopes, ...claims });
      return minted.token;
    },
    async request(path, token, init = {}) {
      const headers = new Headers(init.headers);
      if (token) headers.set("authorization", `Bearer ${token}`);
      const response = await fetch(url + path, { ...init, headers });
      await checkResponse(khala.gateway.routes, { method: init.method ?? "GET", path }, response);
      return response;
    },
    async write(document) {
      const [watermark] = await writeAll([document]);
      return watermark!;
    },
    writeAll,
    caughtUp: async (topic) => (await khala.sync.hub.feed(topic)).refresh(),
    async metric(name, labels = {}) {
      const text = await (await fetch(`${url}/metrics`)).text();
      return sumOf(text, name, labels);
    },
    async [Symbol.asyncDispose]() {
      const opened = beside;
      beside = undefined;
      await Promise.all([khala.stop(), opened?.close()]);
    },
  };
}

/** Appends events to a run over HTTP; resolves with the sequence. */
export async function appendToRun(
  server: TestServer,
  token: string,
  runId: string,
  ...events: readonly { type: string; data?: object }[]
): Promise<string> {
  const body = {
    events: events.map(({ type, data = {} }) => ({ event_id: crypto.randomUUID(), type, data })),
  };
  const response = await server.request(`/runtime/v1/runs/${runId}/events`, token, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as { seq?: string };
  if (response.status !== 201 || !answer.seq) throw new Error(`The append failed: ${JSON.stringify(answer)}`);
  return answer.seq;
}

function sumOf(text: string, name: string, labels: Readonly<Record<string, string>>): number {
  let sum = 0;
  for (const line of text.split("\n")) {
    const [, series, tags = "", value] = /^(\w+)(?:\{(.*)\})? (\S+)/.exec(line) ?? [];
    if (series !== name) continue;
    if (Object.entries(labels).every(([key, label]) => tags.includes(`${key}="${label}"`)))
      sum += Number(value);
  }
  return sum;
}
