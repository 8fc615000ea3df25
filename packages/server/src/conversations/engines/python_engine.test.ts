import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline/promises";
import { expect, type TestContext, test } from "vitest";
import { ROOT } from "../../../../../scripts/run.ts";
import { http } from "./http.ts";
import { play, textOf, turnOf } from "./test_support.ts";

const hasPython = spawnSync("python3", ["--version"]).status === 0;

/** The example in Python at an address of its own, stopped at the end of the test. */
async function pythonEngine(context: TestContext, env: Readonly<Record<string, string>> = {}) {
  if (!hasPython && process.env.CI === "true")
    throw new Error("CI needs python3 to try examples/python_engine.");
  if (!hasPython) console.warn("SKIPPED: examples/python_engine, because python3 is not on PATH.");
  context.skip(!hasPython, "python3 is not on PATH");
  const program = join(ROOT, "examples/python_engine/engine.py");
  const child = spawn("python3", [program, "--port", "0"], {
    env: { ...process.env, ENGINE_TOKEN: "s3cret", ...env },
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

test("the engine in Python follows the contract, fails with readable errors, and refuses strangers", async (context) => {
  await using python = await pythonEngine(context);
  const engine = http(python.url, { bearer: "s3cret" });
  const { events, error } = await play(engine, turnOf("three little words"));
  expect(error).toBeUndefined();
  const call = { tool_call_id: "r1-count", tool: "count" };
  expect(events.slice(0, 3)).toEqual([
    { reasoning_delta: { text: "I have a tool that counts." } },
    { tool_call: { ...call, input: { text: "three little words" } } },
    { tool_result: { ...call, output: { words: 3 } } },
  ]);
  expect(textOf(events)).toBe("Python counted 3 words, after 0 messages. ");
  expect(events.at(-1)).toEqual({ run_finished: { reason: "stop" } });

  const failed = await play(engine, turnOf("  "));
  expect(failed.error).toMatchObject({
    code: "refused",
    message: "There is nothing to count. Send a message with words.",
  });
  expect(failed.events).toHaveLength(2);

  const stranger = await play(http(python.url, { bearer: "wrong" }), turnOf("hi"));
  expect(stranger.error?.message).toContain("The engine answered 401");
});

test("the engine in Python uses the params, reads files with its own token, and repeats no completed call", async (context) => {
  const asked: (string | undefined)[] = [];
  const khala = createServer((request, response) => {
    asked.push(`${request.url} ${request.headers.authorization}`);
    response.end("four five six");
  }).listen(0, "127.0.0.1");
  await once(khala, "listening");
  const { port } = khala.address() as AddressInfo;
  const env = { KHALA_URL: `http://127.0.0.1:${port}`, KHALA_TOKEN: "token" };
  await using python = await pythonEngine(context, env);
  const engine = http(python.url, { bearer: "s3cret", resumable: true });
  const ours = { file: { url: "/files/f1", media_type: "text/plain", name: "notes.txt" } };

  const withFile = await play(engine, turnOf("one two three", { parts: [{ text: "one two three" }, ours] }));
  expect(textOf(withFile.events)).toBe("Python counted 6 words, after 0 messages. ");
  expect(asked).toEqual(["/files/f1 Bearer token"]);
  const parts = [{ file: { ...ours.file, url: "https://example.com/notes.txt" } }];
  expect((await play(engine, turnOf("", { parts }))).error).toMatchObject({ code: "refused" });

  const limited = await play(engine, turnOf("one two", { params: { max_words: 1 } }));
  expect(limited.error).toMatchObject({ code: "context_length", message: "I count to 1." });

  const tool = { tool_call_id: "r1-count", tool: "count", input: {}, output: { words: 9 } };
  const resume = { attempt: 1, messages: [{ message_id: "m1", role: "assistant", parts: [{ tool }] }] };
  const resumed = await play(engine, turnOf("one two", { resume }));
  expect(resumed.events.filter(({ tool_call }) => tool_call)).toEqual([]);
  expect(textOf(resumed.events)).toBe("Python counted 9 words, after 0 messages. ");
  khala.closeAllConnections();
  khala.close();
});
