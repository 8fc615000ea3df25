import type { JsonObject } from "@bufbuild/protobuf";
import type { App } from "../app.ts";
import type { BoardOptions } from "../blackboard/board_options.ts";
import type { Carrier } from "../blackboard/observe/spans.ts";
import { boardStreamId } from "../blackboard/observe/stream_id.ts";
import { type OpenBlackboardPlane, openBlackboardPlane } from "../blackboard/open_plane.ts";
import type { BoardReport, WakeableBoard } from "../blackboard/options.ts";
import { openPostgresBoard } from "../blackboard/postgres/open_board.ts";
import type { Log } from "../conversations/log/log.ts";
import { openAgentPosts } from "../conversations/people/agent_posts.ts";
import type { Database } from "../database/database.ts";
import type { StoredBytes } from "../database/stored_bytes.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { Authority } from "../events/authority.ts";
import { boardAgents, boardCorrelations } from "../events/streams.ts";
import type { Context } from "../kit/context.ts";
import type { Config } from "./config.ts";
import { openKafka } from "./kafka.ts";
import { blackboardSettings } from "./settings.ts";
import { BOARD_WAKEUP } from "./startup.ts";

/** Dependencies of the blackboard. */
export interface BlackboardParts {
  readonly database: Database;
  readonly context: Context;
  readonly authority: Authority;
  readonly wakeups: Pick<Wakeups, "send" | "on" | "onListening">;
  /** The log of conversations, for agents that post to the one their work belongs to. */
  readonly chatLog: Log;
  readonly stored?: StoredBytes;
}

/** Opens the blackboard of an app, with its agents at work if the settings say so. */
export async function openBlackboard(
  config: Config,
  app: App,
  { database, context, authority, wakeups, chatLog, stored }: BlackboardParts,
): Promise<OpenBlackboardPlane> {
  const { clock, newId } = context;
  const waitMs = config.KHALA_CHAT_LEASE_MS;
  const posting = { database, log: chatLog, newId, clock, waitMs, ...(stored && { stored }) };
  const blackboard = await openBlackboardPlane(database, context, {
    ...blackboardSettings(config),
    agents: app.agents,
    schemas: app.schemas,
    schedules: app.schedules,
    wakeups,
    report: boardReport(authority, context.newId),
    postToConversation: openAgentPosts(posting),
    carrier: carrierOf(config),
    openBoard: (options) => openBoard(config, database, context, wakeups, options),
  });
  wakeups.on(BOARD_WAKEUP, (rest) => blackboard.onWakeup(`${BOARD_WAKEUP}${rest}`));
  wakeups.onListening(() => blackboard.recheck());
  return blackboard;
}

/** The board on the backend of the settings: Kafka, else Postgres. */
async function openBoard(
  config: Config,
  database: Database,
  context: Context,
  wakeups: Pick<Wakeups, "send">,
  options: BoardOptions,
): Promise<WakeableBoard> {
  if (config.KAFKA_BOOTSTRAP_SERVERS) return openKafka(config, database, context, options);
  return openPostgresBoard(database, context, {
    ...options,
    wakeups,
    leaseMs: config.KHALA_BOARD_LEASE_MS,
    pollMs: config.KHALA_BOARD_POLL_MS,
    window: config.FLOCK_INDEX_WINDOW,
    retentionMs: config.KHALA_BOARD_KEEP_HOURS * 3_600_000,
    // Publishing is refused on an exact count, not on an estimate.
    countUpTo: Math.max(100_000, config.KHALA_BOARD_LAG_REFUSE),
  });
}

/** The names of the backend in traces. */
function carrierOf(config: Config): Carrier {
  if (!config.KAFKA_BOOTSTRAP_SERVERS)
    return { system: "postgresql", artifacts: "board_artifacts", tasks: () => "board_tasks" };
  const { KAFKA_TOPIC_PREFIX: prefix, KAFKA_TOPIC_ARTIFACTS: artifacts = `${prefix}artifacts` } = config;
  return {
    system: "kafka",
    artifacts,
    tasks: (agent) => `${prefix}tasks.${agent}`,
    group: (agent) => `${prefix}agent.${agent}`,
  };
}

/** The board's figures become authority events, and so documents that the whole org can follow. */
function boardReport(authority: Authority, newId: () => string): BoardReport {
  const append = async (
    stream: typeof boardAgents | typeof boardCorrelations,
    org: string,
    id: string,
    data: object,
  ) => {
    const [type] = Object.keys(stream.events);
    await authority.append({
      stream,
      streamId: boardStreamId(id),
      events: [{ event_id: newId(), type: type!, data: data as JsonObject }],
      org,
      actor: "blackboard",
    });
  };
  return {
    agent: (org, name, counted) => append(boardAgents, org, name, counted),
    correlation: (org, id, counted) => append(boardCorrelations, org, id, { ...counted, correlation_id: id }),
  };
}
