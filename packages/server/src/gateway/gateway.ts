import { SCOPES } from "@khala/contracts";
import type { Audit } from "../access/audit.ts";
import type { App } from "../app.ts";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import type { ConversationPlane } from "../conversations/plane.ts";
import type { Database } from "../database/database.ts";
import type { StoredBytes } from "../database/stored_bytes.ts";
import type { DurableStreams } from "../durable_streams/store.ts";
import type { Authority } from "../events/authority.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import type { Service } from "../kit/service.ts";
import type { SyncPlane } from "../sync/plane.ts";
import { agUiRoutes } from "./adapters/ag_ui_routes.ts";
import { aiRoutes } from "./adapters/ai_routes.ts";
import { aiEndpoint } from "./adapters/ai_socket.ts";
import { durableStreamsRoutes } from "./adapters/durable_streams/routes.ts";
import type { Auth } from "./auth/auth.ts";
import type { Revocations } from "./auth/revocations.ts";
import { limitConnections } from "./http/connection_limit.ts";
import { type Health, healthRoutes } from "./http/health.ts";
import { type Http, httpUrl, listenError, openHttp, type Route } from "./http/http.ts";
import { openLiveStreams } from "./http/live_streams.ts";
import { approvalRoutes } from "./http/routes/approvals.ts";
import { blackboardRoutes, deadLetterRoutes, workerRoutes } from "./http/routes/blackboard.ts";
import { chatRoutes } from "./http/routes/chat.ts";
import { dashboardRoutes, readFiles } from "./http/routes/dashboard.ts";
import { runtimeRoutes } from "./http/routes/events.ts";
import { fileRoutes } from "./http/routes/files.ts";
import { homeRoute, socketHintRoute } from "./http/routes/home.ts";
import { openApiRoute } from "./http/routes/openapi.ts";
import {
  type OpsSources,
  opsAuditRoutes,
  opsConversationRoutes,
  opsFailedRunRoutes,
  opsQuotaRoutes,
  opsRoutes,
  opsSetAsideRoutes,
} from "./http/routes/ops.ts";
import { opsEraseRoute } from "./http/routes/ops_erase.ts";
import { opsSyncRoutes } from "./http/routes/ops_sync.ts";
import { syncRoutes } from "./http/routes/sync.ts";
import { issuerCaller, tokenRoutes } from "./http/routes/token.ts";
import { mcpRoutes } from "./mcp/mcp_routes.ts";
import { gatewayMetrics } from "./metrics.ts";
import type { ChannelDefinition } from "./phoenix/channel.ts";
import { conversationChannel } from "./phoenix/conversation_channel.ts";
import { opsChannel } from "./phoenix/ops_channel.ts";
import { phoenixEndpoint } from "./phoenix/socket.ts";
import { syncChannel } from "./phoenix/sync_channel.ts";
import type { SocketEndpoint } from "./sockets/connection.ts";
import { conversationEndpoint } from "./sockets/conversation_socket.ts";
import { openSockets, type SocketsOptions } from "./sockets/sockets.ts";
import { openTraffic, type Traffic } from "./sockets/traffic.ts";

/** The gateway: HTTP and sockets on one port. */
export interface Gateway extends Service {
  readonly url: string;
  /** Every route, socket and channel, with the action that each needs. */
  readonly routes: readonly Route[];
  readonly endpoints: readonly SocketEndpoint[];
  readonly channels: readonly ChannelDefinition[];
}

export interface GatewaySettings {
  readonly host: string;
  readonly port: number;
  /** Development: every program on this machine may get a token. */
  readonly dev: boolean;
  /** The retention of the journal, and the largest payload that is sent of it. */
  readonly retentionMs: number;
  readonly payloadBytes: number;
  readonly issuerKey: string | undefined;
  /** The issuer of tokens. */
  readonly issuer?: string | undefined;
  readonly maxTtlS: number;
  readonly origins: readonly string[];
  readonly maxBodyBytes: number;
  /** How many reads of one org are worked on at a time. */
  readonly readsPerOrg: number;
  readonly maxTopics: number;
  readonly maxSubscriptionsPerOrg: number;
  /** Connections per address that are no authenticated sockets; 0: any number. */
  readonly maxConnectionsPerAddress: number;
  /** How long open sockets and requests may take to end. */
  readonly closeMs: number;
  readonly limits: SocketsOptions["limits"] & { channels: number };
}

export interface GatewayOptions {
  readonly settings: GatewaySettings;
  readonly auth: Auth;
  readonly revocations: Revocations;
  readonly audit: Audit;
  readonly database: Database;
  readonly authority: Authority;
  /** Limits what orgs store. */
  readonly stored?: StoredBytes;
  readonly sync: SyncPlane;
  readonly conversations: ConversationPlane;
  readonly streams: DurableStreams;
  readonly blackboard?: BlackboardPlane;
  readonly app: App;
  readonly health: Health;
  readonly traffic?: Traffic;
  /** Sources of the operator API; without them there is none. */
  readonly ops?: OpsSources;
  /** Folder of the dashboard's built files. */
  readonly dashboard?: string | undefined;
}

const SWEEP_MS = 20;
/** Clients of other protocols put files into their JSON. Larger files go through POST /files. */
const MAX_BODY_WITH_FILES = 8 << 20;

/** Opens the gateway. Resolves when it listens. */
export async function openGateway(context: Context, options: GatewayOptions): Promise<Gateway> {
  const { settings, auth, revocations, sync, conversations, app, ops } = options;
  const { traffic = openTraffic(context.clock) } = options;
  const { dev, origins, host, port } = settings;
  const metrics = gatewayMetrics(context.telemetry.meter);
  const http = openHttp(context, {
    verifier: auth.verifier,
    metrics,
    traffic,
    maxBodyBytes: settings.maxBodyBytes,
    readsPerOrg: settings.readsPerOrg,
    origins,
    audit: options.audit,
    recognise: issuerCaller({ issuerKey: settings.issuerKey, openOnLoopback: dev }),
  });
  const connections = limitConnections(http.app.server, settings.maxConnectionsPerAddress, () => {
    traffic.refused("limit_exceeded");
    metrics.denials.add(1, { code: "limit_exceeded" });
  });
  const dashboard = options.dashboard ? await readFiles(options.dashboard) : undefined;
  if (dashboard) dashboardRoutes(http, dashboard);
  else homeRoute(http, { dev });
  socketHintRoute(http);
  healthRoutes(http, {
    clock: context.clock,
    health: options.health,
    scrape: () => context.telemetry.scrape(),
  });
  tokenRoutes(http, {
    issuer: auth.issuer,
    revocations,
    maxTtlS: settings.maxTtlS,
    clock: context.clock,
  });
  runtimeRoutes(http, context, {
    authority: options.authority,
    streams: app.streams,
    metrics: sync.metrics,
    stored: options.stored,
  });
  syncRoutes(http, { database: options.database, models: app.models });
  const stopping = new AbortController();
  const { signal } = stopping;
  const live = openLiveStreams(context);
  chatRoutes(http, context, conversations);
  fileRoutes(http, conversations);
  approvalRoutes(http, conversations, options.blackboard);
  if (options.blackboard) {
    blackboardRoutes(http, context, options.blackboard, options.stored);
    deadLetterRoutes(http, options.blackboard);
    workerRoutes(http, options.blackboard, revocations, signal);
  }
  const bodyLimit = Math.max(settings.maxBodyBytes, MAX_BODY_WITH_FILES);
  const adapters = { conversations, audit: options.audit, revocations, live, signal, bodyLimit };
  aiRoutes(http, context, adapters);
  agUiRoutes(http, context, adapters);
  durableStreamsRoutes(http, context, {
    streams: options.streams,
    signal,
    revocations,
    live,
  });

  const channels = [
    syncChannel(context, {
      hub: sync.hub,
      models: app.models,
      metrics: sync.metrics,
      maxTopics: settings.maxTopics,
      maxSubscriptionsPerOrg: settings.maxSubscriptionsPerOrg,
    }),
    conversationChannel(conversations),
    ...(ops ? [opsChannel(ops.overview)] : []),
  ];
  const endpoints = [
    phoenixEndpoint(context, { channels, maxChannels: settings.limits.channels }),
    conversationEndpoint(context, conversations),
    aiEndpoint(context, { conversations, audit: options.audit }),
  ];
  const sockets = openSockets(context, {
    verifier: auth.verifier,
    revocations,
    metrics,
    traffic,
    origins,
    endpoints,
    onAdmitted: connections.release,
    limits: settings.limits,
  });
  if (ops) {
    const minted = dev && auth.issuer ? mintedScopes(app) : undefined;
    opsRoutes(http, { ...ops, dev, mintedScopes: minted, traffic, sockets });
    opsConversationRoutes(http, conversations);
    opsFailedRunRoutes(http, conversations);
    opsAuditRoutes(http, options.audit);
    if (options.blackboard) opsSetAsideRoutes(http, options.blackboard);
    opsQuotaRoutes(http, context.quotas);
    opsEraseRoute(http, options);
    opsSyncRoutes(http, {
      database: options.database,
      authority: options.authority,
      sync,
      models: app.models,
      retentionMs: settings.retentionMs,
      payloadBytes: settings.payloadBytes,
      parity: ops.parity,
    });
  }
  const version = ops?.about.version ?? "0.0.0";
  mcpRoutes(http, context, {
    app,
    watching: { hub: sync.hub, models: app.models, conversations },
    revocations,
    live,
    origins,
    version,
    issuer: settings.issuer,
    signal,
  });
  openApiRoute(http, version);
  http.app.server.on("upgrade", (request, stream, head) => sockets.upgrade(request, stream, head));

  try {
    await http.app.listen({ host, port });
  } catch (error) {
    throw listenError(error, { host, port, setting: "KHALA_PORT" });
  }
  const { port: actual } = http.app.server.address() as { port: number };
  return {
    url: httpUrl(host, actual),
    routes: http.routes,
    endpoints,
    channels,
    async stop() {
      stopping.abort();
      await sockets.drain(settings.closeMs);
      await closeHttp(http, context, settings.closeMs);
    },
  };
}

/** Everything that a token of this app can be good for. */
function mintedScopes({ models, streams }: App): string[] {
  const topics = models.all.map(({ topic }) => topic);
  return [...new Set([...topics, ...streams.map(({ scope }) => scope), ...Object.values(SCOPES)])];
}

/** Waits for running requests up to `timeoutMs`, then closes their connections. */
async function closeHttp({ app }: Http, { clock }: Context, timeoutMs: number): Promise<void> {
  const deadline = clock.now() + timeoutMs;
  let open = true;
  const closed = app.close().finally(() => {
    open = false;
  });
  while (open && clock.now() < deadline) {
    // Keep-alive connections without a request would hold the server open.
    app.server.closeIdleConnections();
    await sleep(clock, SWEEP_MS);
  }
  app.server.closeAllConnections();
  await closed;
}
