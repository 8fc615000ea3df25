import { expect, test } from "vitest";
import { countUnclaimed } from "./count_unclaimed.ts";

const counts = (agent: string, waiting: number, running: number) => ({ agent, waiting, running, dead: 1 });

test("a task that no worker has claimed is waiting, of its agent and org alone", async () => {
  const board = {
    counts: async () => [counts("courier", 2, 7), counts("editor", 0, 3)],
    countsOf: async (of: readonly { agent: string }[]) => of.map(({ agent }) => counts(agent, 2, 4)),
  };
  const counted = countUnclaimed(board, async () => [
    { agent: "courier", org: "acme", tasks: 3 },
    { agent: "courier", org: "blue", tasks: 1 },
  ]);
  expect(await counted.counts()).toEqual([counts("courier", 6, 3), counts("editor", 0, 3)]);
  expect(
    await counted.countsOf([
      { agent: "courier", org: "acme" },
      { agent: "courier", org: "blue" },
      { agent: "editor", org: "acme" },
    ]),
  ).toEqual([counts("courier", 5, 1), counts("courier", 3, 3), counts("editor", 2, 4)]);
});

test("counts no more tasks as waiting than the board counts as running", async () => {
  const board = { counts: async () => [counts("courier", 0, 1)], countsOf: async () => [] };
  const counted = countUnclaimed(board, async () => [{ agent: "courier", org: "acme", tasks: 2 }]);
  expect(await counted.counts()).toEqual([counts("courier", 1, 0)]);
});
