import { expect, test } from "vitest";
import { type ProgressOutput, showProgress } from "./progress.ts";

function screen(isTTY: boolean, columns = 60) {
  let text = "";
  const output: ProgressOutput = { isTTY, columns, write: (more) => (text += more) };
  return { output, text: () => text };
}

test("shows one line with a bar on a terminal, and clears it at the end", () => {
  const { output, text } = screen(true);
  let now = 0;
  {
    using progress = showProgress(output, () => now);
    now = 100;
    progress.update(() => "event 5 of 10", 0.5);
    expect(text()).toBe(`\r\u001b[K${"█".repeat(12)}${"░".repeat(12)}  50 % event 5 of 10`);
    progress.update(() => "too soon", 0.6);
    expect(text()).not.toContain("too soon");
    now = 200;
    progress.update(() => "x".repeat(100));
  }
  expect(text()).toContain(`\r\u001b[K${"x".repeat(58)}…`);
  expect(text().endsWith("\r\u001b[K")).toBe(true);
});

test("writes a line a second to a log, without a bar", () => {
  const { output, text } = screen(false);
  let now = 0;
  using progress = showProgress(output, () => now);
  now = 500;
  progress.update(() => "early", 0.1);
  now = 1_000;
  progress.update(() => "event 5 of 10", 0.5);
  expect(text()).toBe("event 5 of 10\n");
});
