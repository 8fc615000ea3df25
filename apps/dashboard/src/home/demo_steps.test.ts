import { describe, expect, test } from "vitest";
import { type DemoState, demoSteps } from "./demo_steps.ts";

const START: DemoState = {
  isSent: false,
  run: undefined,
  artifacts: [],
  failedReviews: 0,
  isSettled: false,
  letters: [],
};
const artifact = (type: string) => ({ id: type.toLowerCase(), type, version: 1 });
const states = (known: Partial<DemoState>) => demoSteps({ ...START, ...known }).map((step) => step.state);

describe("the steps of the demo", () => {
  test("start with the message only", () => {
    expect(states({})).toEqual(["working", "idle", "idle", "idle", "idle"]);
  });

  test("show the run and the board working at the same time", () => {
    const run = { status: "running", ms: 3000 } as const;
    expect(states({ isSent: true, run, artifacts: [artifact("Topic")] })).toEqual([
      "ok",
      "working",
      "working",
      "idle",
      "idle",
    ]);
  });

  test("show a failed review as waiting, with the number of retries", () => {
    const artifacts = [artifact("Topic"), artifact("Draft")];
    const steps = demoSteps({ ...START, isSent: true, artifacts, failedReviews: 2 });
    expect(steps[3]).toMatchObject({ state: "waiting", note: "retry 2" });
  });

  test("end with the article, and show the retries", () => {
    const artifacts = ["Topic", "Draft", "Review", "Article"].map(artifact);
    const run = { status: "finished", ms: 1200 } as const;
    const steps = demoSteps({ ...START, isSent: true, run, artifacts, failedReviews: 1, isSettled: true });
    expect(steps.every((step) => step.state === "ok")).toBe(true);
    expect(steps[3]?.note).toBe("approved after 1 retry");
    expect(steps[4]?.artifactId).toBe("article");
  });

  test("show a failure when the correlation ends without an article", () => {
    const artifacts = [artifact("Topic"), artifact("Draft")];
    expect(states({ isSent: true, artifacts, isSettled: true })).toEqual([
      "ok",
      "working",
      "ok",
      "failed",
      "failed",
    ]);
  });

  test("link to a dead letter, and show later steps as pending", () => {
    const letter = { id: "l1", agent: "reviewer", message: "The model did not answer." };
    const steps = demoSteps({
      ...START,
      isSent: true,
      artifacts: [artifact("Topic"), artifact("Draft")],
      failedReviews: 4,
      isSettled: true,
      letters: [letter],
    });
    expect(steps[3]).toMatchObject({ state: "waiting", note: "dead letter", letter });
    expect(steps[4]).toMatchObject({ state: "idle" });
  });
});
