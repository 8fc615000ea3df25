import assert from "node:assert/strict";
import { test } from "node:test";
import { testAgent, testBoard } from "@khala/testing";
import app from "./app.ts";
import { planner } from "./planner.ts";

test("makes a plan of a goal", async () => {
  const [plan] = await testAgent(planner).run({ type: "Goal", payload: { text: "ship it" } });
  assert(plan?.type === "Plan");
  assert.equal(plan.payload.steps.length, 3);
});

test("the app's agents work on published artifacts", async () => {
  const board = testBoard(app);
  await board.publish({ type: "Goal", payload: { text: "ship it" } });
  assert.equal(board.artifacts("Plan").length, 1);
});
