import { isGathered } from "../../../../packages/server/src/blackboard/gather.ts";
import type { BoardStore } from "../bench.ts";
import { BATCHES, CALLER, openKhalaBoard } from "../khala_board.ts";
import { serveQueue } from "../queue.ts";

serveQueue<BoardStore>({
  async publisher(store) {
    const { plane, stop } = await openKhalaBoard(store, { works: false, agent: BATCHES });
    return {
      async put(payloads) {
        await plane.publish(
          CALLER,
          payloads.map((payload) => ({ type: "Finding", payload })),
        );
      },
      close: stop,
    };
  },
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
