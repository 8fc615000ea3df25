import { topicForConv } from "@khala/contracts";
import type {
  ChatRequestJson,
  ChatResponseJson,
  ConversationStateJson,
} from "@khala/contracts/conversation/v1";
import { readConfig } from "@khala/server";
import { openAudit } from "../../../server/src/access/audit.ts";
import { defineApp } from "../../../server/src/app.ts";
import type { EngineFactory } from "../../../server/src/conversations/engines/engine.ts";
import type { Log, Position } from "../../../server/src/conversations/log/log.ts";
import { openPostgresLog } from "../../../server/src/conversations/log/postgres/postgres_log.ts";
import {
  openConversationPlane,
  PEOPLE_WAKEUP,
  STOP_WAKEUP,
} from "../../../server/src/conversations/open_plane.ts";
import type { ConversationSettings } from "../../../server/src/conversations/options.ts";
import { PRESENCE_WAKEUP } from "../../../server/src/conversations/people/presence.ts";
import type { ConversationPlane } from "../../../server/src/conversations/plane.ts";
import { readEntry } from "../../../server/src/conversations/timeline/timeline.ts";
import { openDatabase } from "../../../server/src/database/database.ts";
import { openWakeups } from "../../../server/src/database/wakeups.ts";
import { openDurableStreams } from "../../../server/src/durable_streams/store.ts";
import { openAuthority } from "../../../server/src/events/authority.ts";
import { openAuth } from "../../../server/src/gateway/auth/auth.ts";
import type { MintRequest } from "../../../server/src/gateway/auth/issuer.ts";
import { openStoredRevocations } from "../../../server/src/gateway/auth/revocations.ts";
import { openGateway } from "../../../server/src/gateway/gateway.ts";
import type { Clock } from "../../../server/src/kit/clock.ts";
import type { Context } from "../../../server/src/kit/context.ts";
import { openChatFiles, runEvents } from "../../../server/src/main/conversations.ts";
import { authSettings, gatewaySettings, syncSettings } from "../../../server/src/main/settings.ts";
import { openSyncPlane } from "../../../server/src/sync/plane.ts";
import { TimelineSocket } from "../clients/timeline_socket.ts";
import { TimelineView } from "../clients/timeline_view.ts";
import { testContext } from "../kit/context.ts";
import { until } from "../kit/until.ts";
import { testViewer } from "../kit/viewer.ts";
import { ManualEngine } from "./manual_engine.ts";

export interface ConversationServerOptions {
  readonly settings?: Readonly<Record<string, string>>;
  readonly clock?: Clock;
  readonly conversations?: Partial<ConversationSettings>;
  /** Answers instead of the test. */
  readonly engine?: EngineFactory;
}

/** The default settings of conversations. */
const CONVERSATIONS: ConversationSettings = {
  graceMs: 30_000,
  recentBytes: 64 << 10,
  pollMs: 200,
  bookmarkMs: 200,
  leaseMs: 10_000,
  runTimeoutMs: 60_000,
  runMaxBytes: 64 << 20,
  queueLimit: 20,
  engineIdleMs: 60_000,
  maxEngines: 100,
  maxRunsPerOrg: 100,
  maxMessagesPerOrg: 10_000,
  deltaWindowMs: 10,
  deltaChars: 128,
  retention: { ageMs: 3_600_000, entries: 1_000_000, bytes: 1 << 30 },
  ttlMs: 3_600_000,
  janitorEveryMs: 60_000,
};

/** A server with conversations in this process, whose answers the test controls. Disposing of it stops it. */
export interface ConversationServer extends AsyncDisposable {
  readonly url: string;
  /** The Phoenix endpoint. */
  readonly socketUrl: string;
  /** The URL of `/ws`. */
  readonly wsUrl: string;
  readonly engine: ManualEngine;
  readonly plane: ConversationPlane;
  readonly log: Log;
  readonly context: Context;
  /** A token with the scope `chat` by default. */
  token(claims?: Partial<MintRequest>): Promise<string>;
  revoke(token: string): Promise<void>;
  /** An HTTP request, with a new token unless one is given. */
  request(path: string, init?: RequestInit, token?: string): Promise<Response>;
  /** POST /chat, which must be accepted. */
  chat(convId: string, message: string, more?: ChatRequestJson): Promise<Required<ChatResponseJson>>;
  /** GET /chat/:conv_id */
  state(convId: string): Promise<ConversationStateJson>;
  /** Waits until the newest run of a conversation has ended; resolves with its outcome. */
  settled(convId: string): Promise<string>;
  /** A socket of `/ws`; rejects with Refused. */
  connect(convId: string, start?: Readonly<Record<string, string>>, token?: string): Promise<TimelineSocket>;
  /** The log's text of each message. */
  texts(convId: string): Promise<Map<string, string>>;
  /** The sum of a metric over all series. */
  metric(name: string): Promise<number>;
}

const BEGINNING: Position = { seq: 0n, time: 0 };
const ALL = { entries: 100_000, bytes: 1 << 30 };

/** Starts a server on a database that may be shared with others. */
export async function startConversations(
  databaseUrl: string,
  { settings = {}, clock, conversations = {}, engine: given }: ConversationServerOptions = {},
): Promise<ConversationServer> {
  const config = readConfig({
    DATABASE_URL: databaseUrl,
    KHALA_PORT: "0",
    // The key that all test servers share, so that a token of one is good on another.
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    KHALA_DRAIN_MS: "1000",
    ...settings,
  });
  const context = await testContext({ ...(clock && { clock }) });
  const closers: (() => Promise<unknown>)[] = [() => context.telemetry.shutdown()];
  const database = openDatabase({ url: databaseUrl, poolSize: 6, log: context.log });
  closers.push(() => database.close());
  const authority = openAuthority(database, context);
  const wakeups = openWakeups(database, context, { enabled: true });
  const log = openPostgresLog(database, context, { ttlMs: CONVERSATIONS.ttlMs, wakeups });
  closers.push(() => log.stop());
  const app = defineApp({ models: [] });
  const sync = await openSyncPlane(database, authority, context, {
    models: app.models,
    ...syncSettings(config),
    wakeups,
  });
  closers.push(() => sync.stop());
  const engine = new ManualEngine();
  const plane = await openConversationPlane(database, log, context, {
    ...CONVERSATIONS,
    ...conversations,
    engine: given ?? engine.factory,
    runs: runEvents(authority),
    files: await openChatFiles(config, database, context),
    publish: async () => [],
    wakeups,
  });
  closers.push(() => plane.stop());
  const streams = openDurableStreams(database, context, { wakeups });
  closers.push(() => streams.stop());
  wakeups.on("log:", (stream) => log.onWakeup(stream));
  wakeups.on(STOP_WAKEUP, (runId) => plane.onStopWakeup(runId));
  wakeups.on(PEOPLE_WAKEUP, () => plane.onPeopleWakeup());
  wakeups.on(PRESENCE_WAKEUP, (text) => plane.onPresenceWakeup(text));
  wakeups.onListening(() => log.recheck());
  wakeups.start();
  closers.push(() => wakeups.stop());
  const revocations = openStoredRevocations(database, context, 10_000, () => {});
  closers.push(() => revocations.stop());
  const auth = await openAuth(authSettings(config, true), context, revocations);
  const audit = openAudit(database, context, { keepMs: 3_600_000, lines: false });
  closers.push(() => audit.stop());
  const gateway = await openGateway(context, {
    settings: gatewaySettings(config, true),
    auth,
    revocations,
    audit,
    database,
    authority,
    sync,
    conversations: plane,
    streams,
    app,
    health: async () => ({}),
  });
  closers.push(() => gateway.stop());

  const token: ConversationServer["token"] = async (claims = {}) => {
    const request = { sub: "user-1", org_id: "org-1", scopes: ["chat"], ...claims };
    return (await auth.issuer!.mint(request)).token;
  };
  const request: ConversationServer["request"] = async (path, init = {}, bearer) => {
    const headers = new Headers(init.headers);
    headers.set("authorization", `Bearer ${bearer ?? (await token())}`);
    if (init.body && !headers.has("content-type")) headers.set("content-type", "application/json");
    return fetch(gateway.url + path, { ...init, headers });
  };
  const sockets = gateway.url.replace("http", "ws");
  return {
    url: gateway.url,
    socketUrl: `${sockets}/socket`,
    wsUrl: `${sockets}/ws`,
    engine,
    plane,
    log,
    context,
    token,
    request,
    revoke: async (bearer) => {
      const { jti, org, expiresAt } = await auth.verifier.verify(bearer);
      await revocations.revoke({ org, jti }, expiresAt);
    },
    async chat(convId, message, more = {}) {
      const body = JSON.stringify({ conv_id: convId, message, ...more });
      const response = await request("/chat", { method: "POST", body });
      if (response.status !== 202) throw new Error(`POST /chat: ${response.status} ${await response.text()}`);
      return (await response.json()) as Required<ChatResponseJson>;
    },
    async state(convId) {
      const response = await request(`/chat/${convId}`);
      if (response.status !== 200) throw new Error(`GET /chat: ${response.status} ${await response.text()}`);
      return (await response.json()) as ConversationStateJson;
    },
    settled: (convId) =>
      until("the end of the run", async () => {
        const { status } = (await plane.run(testViewer({ org: "org-1", subject: "user-1" }), convId)) ?? {};
        return status !== "queued" && status !== "running" && status;
      }),
    async connect(convId, start = {}, bearer) {
      const params = { conv_id: convId, token: bearer ?? (await token()), ...start };
      return TimelineSocket.connect(`${sockets}/ws`, params);
    },
    async texts(convId) {
      const page = await log.read(topicForConv(convId), BEGINNING, ALL);
      const view = new TimelineView();
      for (const entry of page?.entries ?? []) {
        const { seq, event } = readEntry(entry);
        view.apply({ type: "event", seq: String(seq), event });
      }
      return view.texts;
    },
    async metric(name) {
      const text = await (await fetch(`${gateway.url}/metrics`)).text();
      const values = text.split("\n").filter((line) => line.startsWith(name) && /^\w+[ {]/.test(line));
      return values.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
    },
    async [Symbol.asyncDispose]() {
      for (const close of closers.splice(0).reverse()) await close();
    },
  };
}
