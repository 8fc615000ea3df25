import type { BoardStore } from "../bench.ts";
import { khalaPublisher, openKhalaBoard } from "../khala_board.ts";
import { serveQueue } from "../queue.ts";

serveQueue<BoardStore>({
  publisher: (store) => khalaPublisher(store),
  async worker(store, { settled }) {
    const { stop } = await openKhalaBoard(store, { works: true, onSettled: () => settled(1) });
    return { close: stop };
  },
});
