import { serve } from "../../kit/program.ts";
import type { BoardStore } from "../bench.ts";
import { CALLER, type KhalaBoard, openKhalaBoard } from "../khala_board.ts";

let board: KhalaBoard | undefined;

const methods = {
  /** Answers when everything is loaded, and nothing is opened. */
  async ready(_: undefined): Promise<void> {
    globalThis.gc?.();
  },

  /** Milliseconds until the board is open, which is when its index is read to the end. */
  async open(store: BoardStore): Promise<number> {
    const from = performance.now();
    board = await openKhalaBoard(store, { works: true });
    return performance.now() - from;
  },

  /** Milliseconds of the first read of an artifact that is on the board. */
  async get({ id }: { id: string }): Promise<number> {
    const from = performance.now();
    if (!(await board!.plane.get(CALLER, id))) throw new Error("An artifact is not found.");
    return performance.now() - from;
  },

  /** The most memory that the process ever had, in bytes. */
  async peak(_: undefined): Promise<number> {
    globalThis.gc?.();
    return process.resourceUsage().maxRSS * 1_024;
  },
};

/** What this program can be asked. */
export type BoardStart = typeof methods;

serve(methods, () => board?.stop());
