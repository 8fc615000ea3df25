import type { BoardStore } from "../bench.ts";
import { AWAITING, khalaPublisher, NOOP, openKhalaBoard } from "../khala_board.ts";
import { serveQueue } from "../queue.ts";

serveQueue<BoardStore & { readonly awaits?: boolean }>({
  publisher: (store) => khalaPublisher(store),
  async worker({ awaits, ...store }, settled) {
    const { stop } = await openKhalaBoard(store, {
      works: true,
      agent: awaits ? AWAITING : NOOP,
      onSettled: () => settled(1),
    });
    return { close: stop };
  },
});
