import { expect, test } from "vitest";
import { Replay } from "./replay_steps.ts";

const frames = Array.from({ length: 1_000 }, (_, i) => i);

test("gives the state after the frames up to a position, in any order", () => {
  const replay = new Replay(frames, 0, (sum, frame) => sum + frame);
  for (const position of [999, 1_000, 1, 256, 255, 257, 512, 3])
    expect(replay.at(position), `position ${position}`).toBe((position * (position - 1)) / 2);
});

test("clamps positions outside of the log", () => {
  const replay = new Replay(frames, 0, (sum) => sum + 1);
  expect(replay.at(0)).toBe(0);
  expect(replay.at(-5)).toBe(0);
  expect(replay.at(1e9)).toBe(1_000);
});

test("going back costs a bounded number of steps", () => {
  let steps = 0;
  const replay = new Replay(frames, 0, (sum) => {
    steps++;
    return sum + 1;
  });
  replay.at(1_000);
  steps = 0;
  replay.at(999);
  expect(steps).toBeLessThan(256);
});
