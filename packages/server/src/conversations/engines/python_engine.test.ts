import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { expect, type TestContext, test } from "vitest";
import { ROOT } from "../../../../../scripts/run.ts";
import { http } from "./http.ts";
import { play, textOf, turnOf } from "./test_support.ts";

const hasPython = spawnSync("python3", ["--version"]).status === 0;

/** The example in Python at an address of its own, stopped at the end of the test. */
async function pythonEngine(context: TestContext) {
  if (!hasPython && process.env.CI === "true")
    throw new Error("CI needs python3 to try examples/python_engine.");
  if (!hasPython) console.warn("SKIPPED: examples/python_engine, because python3 is not on PATH.");
  context.skip(!hasPython, "python3 is not on PATH");
  const program = join(ROOT, "examples/python_engine/engine.py");
  const child = spawn("python3", [program, "--port", "0"], {
    env: { ...process.env, ENGINE_TOKEN: "s3cret" },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const { value: line = "" } = await createInterface(child.stdout)[Symbol.asyncIterator]().next();
  return {
    url: /http:\S+/.exec(line)![0],
    async [Symbol.asyncDispose]() {
      child.kill();
      await once(child, "exit");
    },
  };
}

test("the engine in Python answers by the contract, fails readably, and keeps strangers out", async (context) => {
  await using python = await pythonEngine(context);
  const engine = http(python.url, { bearer: "s3cret" });
  const { events, error } = await play(engine, turnOf("three little words"));
  expect(error).toBeUndefined();
  const call = { tool_call_id: "r1-count", tool: "count" };
  expect(events.slice(0, 3)).toEqual([
    { reasoning_delta: { text: "3 words to count." } },
    { tool_call: { ...call, input: { text: "three little words" } } },
    { tool_result: { ...call, output: { words: 3 } } },
  ]);
  expect(textOf(events)).toBe("Python counted 3 words, after 0 messages. ");
  expect(events.at(-1)).toEqual({ run_finished: { reason: "stop" } });

  const failed = await play(engine, turnOf("  "));
  expect(failed.error?.message).toBe("There is nothing to count. Send a message with words.");
  expect(failed.events).toHaveLength(2);

  const stranger = await play(http(python.url, { bearer: "wrong" }), turnOf("hi"));
  expect(stranger.error?.message).toContain("The engine answered 401");
});
