import { randomUUID } from "node:crypto";
import { openBoard } from "../../packages/kafka/src/open_board.ts";
import type { Board } from "../../packages/server/src/blackboard/board.ts";
import type { BoardUnderTest } from "../../packages/server/src/conformance/board.ts";
import { testContext } from "./context.ts";
import { sharedKafka } from "./kafka.ts";

/** More than a record has besides the artifact. */
const OVERHEAD_BYTES = 2_048;
const RECORD_BYTES = 1_048_576;
const PARTITIONS = 3;

/** A board on topics of its own. */
export async function kafkaBoard(): Promise<BoardUnderTest> {
  const name = `t${randomUUID().slice(0, 8)}`;
  const bootstrap = await sharedKafka();
  const context = await testContext();
  const boards: Board[] = [];
  return {
    async open(options) {
      const clientId = `${name}-${boards.length + 1}`;
      const board = await openBoard(context, {
        ...options,
        kafka: { bootstrap, clientId },
        prefix: `${name}.`,
        partitions: PARTITIONS,
        maxRecordBytes: RECORD_BYTES,
        retryDelaysMs: [100, 1_500, 60_000],
        sessionTimeoutMs: 6_000,
      });
      boards.push(board);
      return board;
    },
    conflicts: false,
    partitions: PARTITIONS,
    maxBytes: RECORD_BYTES - OVERHEAD_BYTES,
    async [Symbol.asyncDispose]() {
      await Promise.all(boards.map((board) => board.stop()));
      await context.telemetry.shutdown();
    },
  };
}
