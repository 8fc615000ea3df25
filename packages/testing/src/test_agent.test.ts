import { agent, FatalError, RateLimitedError } from "@khala/server";
import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { ManualClock } from "./manual_clock.ts";
import { testAgent } from "./test_agent.ts";

const schemas = {
  Note: z.object({ text: z.string() }),
  Summary: z.object({ words: z.number().int() }),
};

const summariser = agent("summariser", {
  schemas,
  consumes: "Note",
  where: ({ payload }) => payload.text !== "",
  retry: { base: 1_000 },
  timeout: 2_000,
  async run({ artifact, attempt }, signal) {
    const { text } = artifact.payload;
    if (text === "broken") throw new Error("cannot read it");
    if (text === "fatal") throw new FatalError("never");
    if (text === "later") throw new RateLimitedError("busy", 7_000);
    if (text === "wrong") return { type: "Summary", payload: { words: 0.5 } };
    if (text === "slow") await new Promise((resolve) => signal.addEventListener("abort", resolve));
    return { type: "Summary", payload: { words: text.split(" ").length * attempt } };
  },
});

const note = (text: string) => ({ type: "Note", payload: { text } }) as const;

test("run returns what the agent publishes", async () => {
  const published = await testAgent(summariser).run(note("three short words"));
  expect(published).toMatchObject([
    { type: "Summary", payload: { words: 3 }, produced_by: "agent:summariser" },
  ]);
});

test("run throws the agent's errors, and refuses outputs that the board would refuse", async () => {
  const tested = testAgent(summariser);
  await expect(tested.run(note("broken"))).rejects.toThrow("cannot read it");
  await expect(tested.run(note("wrong"))).rejects.toThrow("outputs[0].payload.words");
  await expect(tested.run(note(""))).rejects.toThrow('Agent "summariser" does not consume this Note');
  expect(await tested.accepts(note(""))).toBe(false);
  expect(await tested.accepts(note("words"))).toBe(true);
});

test("settle tells a retry from a dead letter", async () => {
  const tested = testAgent(summariser);
  expect(await tested.settle(note("broken"))).toMatchObject({ outcome: "retry", delayMs: 1_000 });
  expect(await tested.settle(note("broken"), { attempt: 5 })).toMatchObject({ outcome: "dead" });
  expect(await tested.settle(note("fatal"))).toMatchObject({ outcome: "dead" });
  expect(await tested.settle(note("later"))).toMatchObject({ outcome: "retry", delayMs: 7_000 });
  expect(await tested.settle(note("words"))).toMatchObject({ outcome: "done", published: [{}] });
});

test("the agent's timeout runs on the given clock", async () => {
  const clock = new ManualClock();
  const run = testAgent(summariser, { clock }).run(note("slow"));
  const refused = expect(run).rejects.toThrow("longer than 2000 ms");
  await new Promise(setImmediate);
  await clock.advance(2_000);
  await refused;
});

test("artifacts have the types of the agent's schemas", () => {
  const tested = testAgent(summariser);
  // @ts-expect-error: the text is missing.
  const missing: Parameters<typeof tested.run>[0] = { type: "Note", payload: {} };
  // @ts-expect-error: it consumes notes.
  const other: Parameters<typeof tested.run>[0] = { type: "Summary", payload: { words: 1 } };
  expect([missing, other]).toHaveLength(2);
  type Published = Awaited<ReturnType<typeof tested.run>>[number];
  expectTypeOf<Extract<Published, { type: "Summary" }>["payload"]>().toEqualTypeOf<{ words: number }>();
});
