import type { Board } from "../board.ts";
import type { AgentCounts } from "../model/counts.ts";
import type { Offered } from "./claims.ts";
import type { Remote } from "./remote.ts";

type Counts = Pick<Board, "counts" | "countsOf">;

/**
 * The board's counts, with tasks that no worker has claimed as waiting. The board counts them as running, because a server
 * holds them to offer them.
 */
export function countUnclaimed(board: Counts, readOffered: Remote["offered"]): Counts {
  return {
    async counts() {
      const [counts, offered] = await Promise.all([board.counts(), readOffered()]);
      return counts.map((count) => withWaiting(count, offered));
    },
    async countsOf(of) {
      const [counts, offered] = await Promise.all([
        board.countsOf(of),
        readOffered(of.map(({ org }) => org)),
      ]);
      return counts.map((count, i) => withWaiting(count, offered, of[i]!.org));
    },
  };
}

function withWaiting(count: AgentCounts, offered: readonly Offered[], org?: string): AgentCounts {
  const own = offered.filter((each) => each.agent === count.agent && (org === undefined || each.org === org));
  // Read at another moment than the board, so there may be more than run.
  const unclaimed = Math.min(
    count.running,
    own.reduce((sum, { tasks }) => sum + tasks, 0),
  );
  return { ...count, running: count.running - unclaimed, waiting: count.waiting + unclaimed };
}
