import type { Board, BoardOptions, Context } from "@khala/server/blackboard";
import { clientLog } from "./client/client_log.ts";
import { listTopics } from "./client/cluster_admin.ts";
import { openBoard } from "./open_board.ts";
import { boardSettings, type OperatorSettings } from "./operator_settings.ts";

export type { OperatorSettings as KafkaBoardSettings } from "./operator_settings.ts";

/** Opens a board on Kafka: its topics are there and as they must be, and its index is read to the end. */
export function openKafkaBoard(context: Context, given: BoardOptions & OperatorSettings): Promise<Board> {
  const { agents, route, routes, replayed, running, observer } = given;
  return openBoard(context, {
    agents,
    route,
    routes,
    ...(replayed && { replayed }),
    ...(running && { running }),
    observer,
    ...boardSettings(given, clientLog(context)),
  });
}

/** Asks the brokers which topics they have. Throws, and says why, if they do not let whoever has these settings in. */
export function askKafka({
  bootstrap,
  clientId,
  sasl,
  ssl,
}: Pick<OperatorSettings, "bootstrap" | "clientId" | "sasl" | "ssl">): Promise<readonly string[]> {
  return listTopics({ bootstrap, clientId, ...(sasl && { sasl }), ...(ssl && { ssl }) });
}
