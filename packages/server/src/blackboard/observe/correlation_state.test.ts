import { expect, test } from "vitest";
import type { CorrelationCounts, CorrelationName } from "../model/counts.ts";
import { readCorrelations, type WaitingCounts } from "./correlation_state.ts";

const NOTHING: WaitingCounts = {
  approvals: 0,
  gathering: 0,
  scheduled: 0,
  paused: 0,
  returning: 0,
  sending: 0,
};
const NAMES: CorrelationName[] = [
  { org: "acme", name: "c" },
  { org: "zeta", name: "c" },
];

/** A task that is in these places, one after the other, at each read. */
function travelling(...places: ("board" | "off" | "both")[]) {
  const next = () => places.shift() ?? "board";
  const asked: CorrelationName[][] = [];
  const board = {
    async correlations(names: readonly CorrelationName[]): Promise<CorrelationCounts[]> {
      asked.push([...names]);
      const open = next() === "off" ? 0 : 1;
      const rest = { artifacts: 1, retrying: 0, done: 0, dead: 0 };
      return names.map(({ org, name }) => ({
        correlationId: name,
        org,
        open: org === "acme" ? open : 1,
        ...rest,
      }));
    },
  };
  const off = async (names: readonly CorrelationName[]) => {
    const sending = next() === "board" ? 0 : 1;
    return names.map(({ org }) => ({ ...NOTHING, sending: org === "acme" ? sending : 0 }));
  };
  return { asked, look: () => readCorrelations(board, off, NAMES) };
}

test("counts a task that returns to the board between two reads", async () => {
  const { asked, look } = travelling("off", "board", "board");
  expect((await look())[0]).toMatchObject({ count: { org: "acme", open: 1 }, off: NOTHING });
  expect(asked).toEqual([NAMES, [NAMES[0]]]);
});

test("counts a task that leaves the board between two reads", async () => {
  const { look } = travelling("board", "off");
  expect((await look())[0]).toMatchObject({ count: { open: 1 }, off: { sending: 1 } });
});

test("reads the board once where something is open or waits", async () => {
  for (const places of [
    ["board", "board"],
    ["off", "off"],
  ] as const) {
    const { asked, look } = travelling(...places);
    await look();
    expect(asked).toEqual([NAMES]);
  }
});
