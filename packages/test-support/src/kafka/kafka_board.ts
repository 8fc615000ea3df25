import { randomUUID } from "node:crypto";
import { openBoard } from "../../../kafka/src/open_board.ts";
import type { KafkaBoardSettings } from "../../../kafka/src/settings.ts";
import type { Board } from "../../../server/src/blackboard/board.ts";
import type { BoardOptions } from "../../../server/src/blackboard/board_options.ts";
import { testContext } from "../kit/context.ts";
import { sharedKafka } from "./kafka.ts";

/** A new board on Kafka, with as many processes as are opened. */
export interface KafkaBoard extends AsyncDisposable {
  readonly bootstrap: string;
  readonly prefix: string;
  readonly partitions: number;
  /** The warnings of its processes. */
  readonly warnings: readonly string[];
  open(options: BoardOptions, given?: Partial<KafkaBoardSettings>): Promise<Board>;
}

/** Makes a board under a prefix of its own on the broker that all files share. Disposing stops its processes. */
export async function kafkaBoard(settings: Partial<KafkaBoardSettings> = {}): Promise<KafkaBoard> {
  const bootstrap = await sharedKafka();
  const prefix = `t${randomUUID().slice(0, 8)}.`;
  const { partitions = 4 } = settings;
  const boards: Board[] = [];
  const warnings: string[] = [];
  let processes = 0;
  return {
    bootstrap,
    prefix,
    partitions,
    warnings,
    async open(options, given = {}) {
      const number = processes++;
      const clientId = `${prefix}${number}`;
      const context = await testContext({ seed: number + 1, onWarning: (line) => warnings.push(line) });
      const board = await openBoard(context, {
        ...options,
        kafka: { bootstrap, clientId },
        prefix,
        producers: 2,
        retryDelaysMs: [1_000, 5_000, 60_000],
        // Longer than a busy machine pauses a process: no live process is given up.
        sessionTimeoutMs: 30_000,
        // Partitions move as soon as a process joins or leaves.
        heartbeatMs: 300,
        leaveMs: 60_000,
        ...settings,
        partitions,
        ...given,
      });
      boards.push(board);
      return board;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(boards.map((board) => board.stop()));
    },
  };
}

const RECORD_BYTES = 1_048_576;
/** More than a record adds to the artifact. */
const OVERHEAD_BYTES = 2_048;

/** The same for the conformance suite of boards, with this board's features. */
export async function kafkaBoardOfSuite(settings: Pick<KafkaBoardSettings, "transactions">) {
  const board = await kafkaBoard({ ...settings, maxRecordBytes: RECORD_BYTES });
  return { ...board, conflicts: true, maxBytes: RECORD_BYTES - OVERHEAD_BYTES };
}
