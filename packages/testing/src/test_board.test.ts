import { agent, defineApp } from "@khala/server";
import { expect, test } from "vitest";
import { z } from "zod";
import { testBoard } from "./test_board.ts";

const schemas = {
  Topic: z.object({ topic: z.string() }),
  Draft: z.object({ text: z.string() }),
  Review: z.object({ ok: z.boolean() }),
  Article: z.object({ text: z.string() }),
};

let failures = 0;
const app = defineApp({
  schemas,
  agents: [
    agent("writer", {
      schemas,
      consumes: "Topic",
      run: ({ artifact }) => ({ type: "Draft", payload: { text: `On ${artifact.payload.topic}` } }),
    }),
    agent("reviewer", {
      schemas,
      consumes: "Draft",
      retry: { attempts: 2, base: 1_000 },
      run({ artifact }) {
        if (artifact.payload.text.includes("nothing")) throw new Error("empty");
        if (failures-- > 0) throw new Error("tired");
        return { type: "Review", payload: { ok: true } };
      },
    }),
    agent("publisher", {
      schemas,
      consumes: ["Draft", "Review"],
      join: { types: ["Draft", "Review"], within: 60_000 },
      run({ artifact }) {
        if (artifact.type === "Draft") return { type: "Article", payload: artifact.payload };
      },
    }),
  ],
});

test("runs agents on each other's outputs until nothing is left", async () => {
  const board = testBoard(app);
  await board.publish({ type: "Topic", payload: { topic: "otters" } });
  expect(board.artifacts().map(({ type }) => type)).toEqual(["Topic", "Draft", "Review", "Article"]);
  expect(board.artifacts("Article")).toMatchObject([{ payload: { text: "On otters" } }]);
});

test("a retry waits for the clock", async () => {
  failures = 1;
  const board = testBoard(app);
  await board.publish({ type: "Topic", payload: { topic: "otters" } });
  await board.advance(999);
  expect(board.artifacts("Review")).toEqual([]);
  await board.advance(1);
  expect(board.artifacts("Article")).toHaveLength(1);
});

test("a task that fails for good becomes a dead letter, and its join times out", async () => {
  const board = testBoard(app);
  await board.publish({ type: "Topic", payload: { topic: "nothing" } });
  await board.advance(60_000);
  expect(board.deadLetters("reviewer")).toMatchObject([{ attempts: 2, failure: { message: "empty" } }]);
  expect(board.deadLetters("publisher")).toMatchObject([{ failure: { class: "IncompleteJoin" } }]);
});

test("a batch runs when it is full, or its time is up", async () => {
  const sizes: number[] = [];
  const collector = agent("collector", {
    consumes: "Click",
    batch: { size: 3, timeout: 5_000 },
    run: ({ artifacts }) => void sizes.push(artifacts.length),
  });
  const board = testBoard({ agents: [collector] });
  for (let n = 0; n < 4; n++) await board.publish({ type: "Click", payload: { n } });
  expect(sizes).toEqual([3]);
  await board.advance(5_000);
  expect(sizes).toEqual([3, 1]);
});

test("a task waits for approval, and a scheduled artifact for its time", async () => {
  const paid: unknown[] = [];
  const payer = agent("payer", {
    consumes: "Bill",
    approval: true,
    run: ({ artifact }) => void paid.push(artifact.payload),
  });
  const board = testBoard({ agents: [payer] });
  const not_before = new Date(board.clock.now() + 1_000).toISOString();
  await board.publish({ type: "Bill", payload: 1 }, { type: "Bill", payload: 2, not_before });
  const [first] = board.approvals();
  await board.decide(first!, { approved: true });
  expect(paid).toEqual([1]);
  await board.advance(1_000);
  await board.decide(board.approvals()[0]!, { approved: false, by: "ben" });
  expect(paid).toEqual([1]);
  expect(board.deadLetters("payer")).toEqual([]);
});

test("checks payloads by the app's schemas", async () => {
  const board = testBoard(app);
  // @ts-expect-error: a topic is a text.
  await expect(board.publish({ type: "Topic", payload: { topic: 1 } })).rejects.toThrow("payload.topic");
  expect(board.artifacts()).toEqual([]);
});
