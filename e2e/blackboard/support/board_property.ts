import { kafkaHere } from "@khala/test-support/kafka/kafka";
import { kafkaBoard } from "@khala/test-support/kafka/kafka_board";
import { checkProperty } from "@khala/test-support/kit/property_runs";
import { type Command, histories } from "./board_commands.ts";
import { postgresBoard } from "./board_postgres.ts";
import { BoardWorld, type OpenedBoard } from "./board_world.ts";

export interface Backend {
  readonly name: string;
  /** Histories in `npm test`. */
  readonly runs: number;
  open(): Promise<OpenedBoard>;
}

const onKafka = () => kafkaBoard({ partitions: 3, retryDelaysMs: [100, 1_500, 60_000] });

/** The backends that are here. */
export const backends: Backend[] = [{ name: "Postgres", runs: 6, open: () => postgresBoard() }];
if (kafkaHere()) backends.push({ name: "Kafka", runs: 3, open: onKafka });

/** After any history, each task has ended once, in the order of its key. */
export function checkBoard(
  { name, runs }: Backend,
  board: OpenedBoard,
  { search = false } = {},
): Promise<void> {
  const check = async (history: readonly Command[]) => {
    const world = await BoardWorld.open(board);
    try {
      for (const command of history) await world.run(command);
      await world.settle();
    } finally {
      await world.end();
    }
  };
  return checkProperty({ name: `board on ${name}`, histories, check, runs, search });
}
