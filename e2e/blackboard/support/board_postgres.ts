import type { BoardUnderTest } from "@khala/test-support/conformance/board/board";
import { testContext } from "@khala/test-support/kit/context";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import type { Board } from "../../../packages/server/src/blackboard/board.ts";
import type { BoardOptions } from "../../../packages/server/src/blackboard/board_options.ts";
import { PARTITIONS } from "../../../packages/server/src/blackboard/postgres/lanes.ts";
import {
  openPostgresBoard,
  type PostgresBoard,
  type PostgresBoardOptions,
} from "../../../packages/server/src/blackboard/postgres/open_board.ts";
import { openWakeups } from "../../../packages/server/src/database/wakeups.ts";

/** A board on a database of its own. Each handle hears the wakeups of the others, as processes do. */
export async function postgresBoard(settings: Partial<PostgresBoardOptions> = {}): Promise<BoardUnderTest> {
  const parts = new AsyncDisposableStack();
  const { database } = parts.use(await testDatabase({ poolSize: 12 }));
  const context = await testContext();
  const holders = new Map<Board, string>();
  const open = async (options: BoardOptions): Promise<Board> => {
    const wakeups = openWakeups(database, context, { enabled: true });
    const board: PostgresBoard = await openPostgresBoard(database, context, {
      leaseMs: 30_000,
      pollMs: 500,
      ...settings,
      ...options,
      wakeups,
    });
    wakeups.on("", (name) => board.onWakeup(name));
    wakeups.onListening(() => board.recheck());
    wakeups.start();
    let stopping: Promise<void> | undefined;
    const stop = () => {
      stopping ??= board.stop().then(() => wakeups.stop());
      return stopping;
    };
    parts.defer(stop);
    const handle = { ...board, stop };
    holders.set(handle, board.holder);
    return handle;
  };
  return {
    open,
    conflicts: true,
    countsOrgs: true,
    partitions: PARTITIONS,
    async usurp(board) {
      await database.query({
        text: `UPDATE runtime.board_tasks SET held_until = now(), claimed_by = 'nobody' WHERE claimed_by = $1`,
        values: [holders.get(board)],
      });
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}
