import { isGathered } from "../../../../packages/server/src/blackboard/waiting/gather.ts";
import type { BoardStore } from "../bench.ts";
import { BATCHES, khalaPublisher, openKhalaBoard } from "../khala_board.ts";
import { serveQueue } from "../queue.ts";

serveQueue<BoardStore>({
  publisher: (store) => khalaPublisher(store, BATCHES),
  async worker(store, settled) {
    const { stop } = await openKhalaBoard(store, {
      works: true,
      agent: BATCHES,
      // Where an engine gathers in tasks of their own, those are not the work.
      onSettled: (task) => {
        if (isGathered(task)) settled(task.artifacts.length);
      },
    });
    return { close: stop };
  },
});
