import { openAudit } from "../access/audit.ts";
import { type App, defineApp, noEngine } from "../app.ts";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import {
  openConversationPlane,
  PEOPLE_WAKEUP,
  STOP_WAKEUP,
  TAKEOVER_WAKEUP,
} from "../conversations/open_plane.ts";
import { PRESENCE_WAKEUP } from "../conversations/people/presence.ts";
import type { ConversationPlane } from "../conversations/plane.ts";
import { openStoredBytes } from "../database/stored_bytes.ts";
import { openWakeups } from "../database/wakeups.ts";
import { openDurableStreams, STREAM_WAKEUP } from "../durable_streams/store.ts";
import { type Authority, openAuthority } from "../events/authority.ts";
import { type Auth, openAuth } from "../gateway/auth/auth.ts";
import { openStoredRevocations } from "../gateway/auth/revocations.ts";
import { type Gateway, openGateway } from "../gateway/gateway.ts";
import { openTraffic } from "../gateway/sockets/traffic.ts";
import { SpanRing } from "../kit/span_ring.ts";
import { type Mirror, noopMirror } from "../sync/mirror/mirror.ts";
import { convexMirror } from "../sync/mirror/mirror_convex.ts";
import { openMirrorStatus } from "../sync/mirror/mirror_status.ts";
import { openSyncPlane, type SyncPlane } from "../sync/plane.ts";
import { startApprovalReports } from "./approvals.ts";
import { openBlackboard } from "./blackboard.ts";
import type { Config } from "./config.ts";
import {
  openChatFiles,
  openChatLog,
  publishForRuns,
  runEvents,
  startConversationCleanup,
} from "./conversations.ts";
import { openHealth } from "./health.ts";
import { openOps } from "./ops.ts";
import {
  authSettings,
  conversationSettings,
  convexSettings,
  gatewaySettings,
  storedBytesOptions,
  syncSettings,
} from "./settings.ts";
import {
  type Closers,
  closeAll,
  EVENTS_WAKEUP,
  type KhalaOptions,
  openContext,
  openServerDatabase,
} from "./startup.ts";

/** A running server. */
export interface Khala {
  /** The server's URL, such as `http://127.0.0.1:4000`. */
  readonly url: string;
  readonly authority: Authority;
  readonly sync: SyncPlane;
  readonly conversations: ConversationPlane;
  readonly blackboard: BlackboardPlane;
  readonly auth: Auth;
  readonly gateway: Gateway;
  readonly app: App;
  /** Whether a client follows a topic here, or watches the overview. */
  watched(): boolean;
  /** Drains and stops everything that this started, last opened first. */
  stop(): Promise<void>;
}

const REVOKED_WAKEUP = "revoked";
const LOG_WAKEUP = "log:";

/** The composition root: settings → database → planes → gateway. */
export async function createKhala(
  definition: App | Parameters<typeof defineApp>[0],
  options: KhalaOptions,
): Promise<Khala> {
  const app = "streams" in definition ? definition : defineApp(definition);
  const { config, dev = false } = options;
  const closers: Closers = [];
  let drain = async () => {};
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= drain().finally(() => closeAll(closers));
    return stopped;
  };
  try {
    const spans = dev ? new SpanRing() : undefined;
    const context = await openContext(options, spans);
    closers.push(() => context.telemetry.shutdown());
    const database = await openServerDatabase(config, context, closers);

    const authority = openAuthority(database, context);
    const wakeups = openWakeups(database, context, { enabled: config.KHALA_WAKEUPS });

    const mirror = await openMirror(config);
    const sync = await openSyncPlane(database, authority, context, {
      models: app.models,
      ...syncSettings(config),
      wakeups,
      mirror,
    });
    closers.push(() => sync.stop());
    wakeups.on(EVENTS_WAKEUP, () => sync.wakeProjectors());
    wakeups.on("", (name) => sync.hub.onWakeup(name));
    wakeups.onListening(() => sync.hub.recheck());
    authority.onAppend(() => {
      sync.wakeProjectors();
      if (!sync.projecting()) wakeups.send(EVENTS_WAKEUP);
    });

    // After the sync plane, which creates some of the tables that are counted.
    const stored = openStoredBytes(database, context, storedBytesOptions(config, app.models.all));
    closers.push(() => stored.stop());

    // Before the blackboard, whose agents post to conversations, and so stopped after it.
    const chatLog = await openChatLog(config, database, context, wakeups);
    closers.push(() => chatLog.stop());
    wakeups.on(LOG_WAKEUP, (stream) => chatLog.onWakeup(stream));
    wakeups.onListening(() => chatLog.recheck());

    // Before the conversations, whose runs publish on it, and so stopped after them.
    const ofBoard = { database, context, authority, wakeups, chatLog, stored };
    const blackboard = await openBlackboard(config, app, ofBoard);
    closers.push(() => blackboard.stop());
    stored.countAlso("blackboard", () => blackboard.storedBytes());

    const files = await openChatFiles(config, database, context, stored);
    const conversations = await openConversationPlane(database, chatLog, context, {
      ...conversationSettings(config),
      engine: app.engine ?? noEngine,
      runs: runEvents(authority),
      publish: publishForRuns(blackboard),
      wakeups,
      files,
      stored,
    });
    closers.push(() => conversations.stop());
    drain = () => conversations.drain(config.KHALA_DRAIN_MS);
    wakeups.on(STOP_WAKEUP, (runId) => conversations.onStopWakeup(runId));
    wakeups.on(TAKEOVER_WAKEUP, () => conversations.onTakeoverWakeup());
    wakeups.on(PEOPLE_WAKEUP, () => conversations.onPeopleWakeup());
    wakeups.on(PRESENCE_WAKEUP, (text) => conversations.onPresenceWakeup(text));
    const { metrics } = conversations;
    closers.push(startConversationCleanup(config, database, chatLog, context, { metrics, files }));

    const pollMs = config.KHALA_BOARD_POLL_MS;
    const reports = startApprovalReports(database, context, { authority, wakeups, pollMs });
    closers.push(() => reports.stop());

    const streams = openDurableStreams(database, context, { wakeups, stored });
    closers.push(() => streams.stop());
    wakeups.on(STREAM_WAKEUP, (id) => streams.onWakeup(id));
    wakeups.onListening(() => streams.recheck());

    const revocations = openStoredRevocations(database, context, 1_000, () => wakeups.send(REVOKED_WAKEUP));
    closers.push(() => revocations.stop());
    wakeups.on(REVOKED_WAKEUP, () => revocations.refresh());

    const audit = openAudit(database, context, {
      keepMs: config.KHALA_AUDIT_KEEP_DAYS * 86_400_000,
      lines: !dev,
    });
    closers.push(() => audit.stop());

    wakeups.start();
    closers.push(() => wakeups.stop());
    closers.push(() => authority.drain());

    const auth = await openAuth(authSettings(config, dev), context, revocations);
    const traffic = openTraffic(context.clock);
    const health = openHealth({ context, config, database, sync, conversations, chatLog, blackboard, auth });
    const parity = openMirrorStatus(database, context, app.models, mirror);
    closers.push(() => parity.stop());
    const ops = openOps(config, context, {
      app,
      demo: options.demo ?? false,
      health,
      sync,
      blackboard,
      traffic,
      spans,
      parity,
    });
    closers.push(() => ops.overview.stop());
    closers.push(() => ops.history.stop());
    const gateway = await openGateway(context, {
      settings: gatewaySettings(config, dev),
      traffic,
      ops,
      dashboard: options.dashboard,
      auth,
      revocations,
      audit,
      database,
      authority,
      stored,
      sync,
      conversations,
      streams,
      blackboard,
      app,
      health,
    });
    closers.push(() => gateway.stop());
    const watched = () => ops.overview.watched || sync.hub.open().some((feed) => feed.liveCount > 0);
    return {
      url: gateway.url,
      authority,
      sync,
      conversations,
      blackboard,
      auth,
      gateway,
      app,
      watched,
      stop,
    };
  } catch (error) {
    await stop().catch((failure) =>
      options.log?.warn({ err: failure.message }, "a part could not be closed after a failed start"),
    );
    throw error;
  }
}

/** Opens the mirror that the settings name, if any. */
async function openMirror(config: Config): Promise<Mirror | undefined> {
  if (config.KHALA_MIRROR === "noop") return noopMirror;
  return config.KHALA_MIRROR === "convex" ? convexMirror(convexSettings(config)) : undefined;
}
