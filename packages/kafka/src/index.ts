import type { Board, BoardOptions, Context } from "@khala/server/blackboard";
import { type KafkaSettings, listTopics } from "./client/client.ts";
import { openBoard } from "./open_board.ts";
import { boardSettings, type OperatorSettings } from "./settings.ts";

export type { OperatorSettings as KafkaBoardSettings } from "./settings.ts";

/** Opens a board on Kafka: creates or verifies its topics, and reads its index to the end. */
export function openKafkaBoard(context: Context, given: BoardOptions & OperatorSettings): Promise<Board> {
  const { agents, route, replayed, running, observer, ...settings } = given;
  return openBoard(context, {
    agents,
    route,
    ...(replayed && { replayed }),
    ...(running && { running }),
    observer,
    ...boardSettings(settings, clientLog(context)),
  });
}

/** Lists the topics of the cluster. Throws with the reason if the brokers refuse these settings. */
export function askKafka(access: Omit<KafkaSettings, "log">): Promise<readonly string[]> {
  return listTopics(access);
}

/** The client logs as errors much that it recovers from. */
const LEVELS = { error: "warn", warn: "info", info: "debug", debug: "trace" } as const;
const EVERY_MS = 10_000;
const MAX_KNOWN = 200;

/** Logs the client's messages. While a broker is away it repeats the same many times a second: each is logged at intervals. */
export function clientLog({ log, clock }: Pick<Context, "log" | "clock">): NonNullable<KafkaSettings["log"]> {
  const loggedAt = new Map<string, number>();
  return (level, message) => {
    const kind = message.replace(/\d+/g, "#");
    const now = clock.now();
    if (now - (loggedAt.get(kind) ?? Number.NEGATIVE_INFINITY) < EVERY_MS) return;
    if (loggedAt.size >= MAX_KNOWN) loggedAt.clear();
    loggedAt.set(kind, now);
    log[LEVELS[level]]({ service: "kafka" }, message);
  };
}
