import type { BoardStore } from "../bench.ts";
import { CALLER, openKhalaBoard } from "../khala_board.ts";
import { serveQueue } from "../queue.ts";

serveQueue<BoardStore>({
  async publisher(store) {
    const { plane, stop } = await openKhalaBoard(store, { works: false });
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
    const { stop } = await openKhalaBoard(store, { works: true, onSettled: () => settled(1) });
    return { close: stop };
  },
});
