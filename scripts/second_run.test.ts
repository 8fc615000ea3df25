import { expect, test } from "vitest";
import { type Ran, runAgain } from "./second_run.ts";

const failed = (stolen: number): Ran => ({ failed: true, stolen });
const passed: Ran = { failed: false, stolen: 0 };

async function play(first: Record<string, Ran>, later: Record<string, Ran[]>, inTime = () => true) {
  const ran: string[] = [];
  const again = async (file: string) => {
    ran.push(file);
    return later[file]!.shift()!;
  };
  return { passed: await runAgain(new Map(Object.entries(first)), { again, inTime }), ran };
}

test("what failed on a machine that was its own has failed", async () => {
  expect(await play({ a: failed(0), b: failed(0.24) }, {})).toEqual({ passed: [], ran: [] });
});

test("what failed while the host took much of the machine is run again, and counts as it ends then", async () => {
  expect(await play({ a: failed(0.6), b: failed(0.3) }, { a: [passed], b: [failed(0)] })).toEqual({
    passed: ["a"],
    ran: ["a", "b"],
  });
});

test("a host that still takes much is given one more chance, and no third", async () => {
  const later = { a: [failed(0.9), passed], b: [failed(0.9), failed(0.9), passed] };
  expect(await play({ a: failed(0.9), b: failed(0.9) }, later)).toEqual({
    passed: ["a"],
    ran: ["a", "a", "b", "b"],
  });
});

test("when time is up nothing is run again", async () => {
  expect(await play({ a: failed(0.9) }, { a: [passed] }, () => false)).toEqual({ passed: [], ran: [] });
});
