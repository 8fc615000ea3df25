import { expect, test } from "vitest";
import { OpenCalls } from "./open_calls.ts";

test("closing waits for running calls, and refuses later ones", async () => {
  const calls = new OpenCalls();
  const pending = Promise.withResolvers<string>();
  const reached: string[] = [];
  const running = calls.run(() => pending.promise);
  const closing = calls.close().then(() => reached.push("closed"));
  const late = calls.run(async () => reached.push("late"));
  calls.now(() => reached.push("at once"));
  await expect(late).rejects.toMatchObject({ code: "shutting_down" });
  reached.push("ended");
  pending.resolve("done");
  expect(await running).toBe("done");
  await closing;
  expect(reached).toEqual(["ended", "closed"]);
});

test("a failed call does not delay closing", async () => {
  const calls = new OpenCalls();
  const failing = calls.run(() => Promise.reject(new Error("no broker")));
  await Promise.all([calls.close(), expect(failing).rejects.toThrow("no broker")]);
});
