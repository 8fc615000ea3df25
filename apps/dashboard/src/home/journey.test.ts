import { describe, expect, test } from "vitest";
import { journey, type Known } from "./journey.ts";

const START: Known = {
  isSent: false,
  run: undefined,
  artifacts: [],
  failedReviews: 0,
  isSettled: false,
  letters: [],
};
const artifact = (type: string) => ({ id: type.toLowerCase(), type, version: 1 });
const states = (known: Partial<Known>) => journey({ ...START, ...known }).map((step) => step.state);

describe("the way of a message", () => {
  test("begins with the message alone", () => {
    expect(states({})).toEqual(["working", "idle", "idle", "idle", "idle"]);
  });

  test("the run goes on while the board already works", () => {
    const run = { status: "running", ms: 3000 } as const;
    expect(states({ isSent: true, run, artifacts: [artifact("Topic")] })).toEqual([
      "ok",
      "working",
      "working",
      "idle",
      "idle",
    ]);
  });

  test("a review that failed waits for its retry, and says how often", () => {
    const steps = journey({
      ...START,
      isSent: true,
      artifacts: [artifact("Topic"), artifact("Draft")],
      failedReviews: 2,
    });
    expect(steps[3]).toMatchObject({ state: "waiting", note: "retry 2" });
  });

  test("ends with the article, and remembers the retries", () => {
    const artifacts = ["Topic", "Draft", "Review", "Article"].map(artifact);
    const run = { status: "finished", ms: 1200 } as const;
    const steps = journey({ ...START, isSent: true, run, artifacts, failedReviews: 1, isSettled: true });
    expect(steps.every((step) => step.state === "ok")).toBe(true);
    expect(steps[3]?.note).toBe("good, after 1 retry");
    expect(steps[4]?.artifactId).toBe("article");
  });

  test("what ended without its article is said, not waited for", () => {
    expect(
      states({ isSent: true, artifacts: [artifact("Topic"), artifact("Draft")], isSettled: true }),
    ).toEqual(["ok", "working", "ok", "failed", "failed"]);
  });

  test("a dead letter waits for a person, who is led to it; what comes after it is still to come", () => {
    const letter = { id: "l1", agent: "reviewer", message: "The model did not answer." };
    const steps = journey({
      ...START,
      isSent: true,
      artifacts: [artifact("Topic"), artifact("Draft")],
      failedReviews: 4,
      isSettled: true,
      letters: [letter],
    });
    expect(steps[3]).toMatchObject({ state: "waiting", note: "waits for you", letter });
    expect(steps[4]).toMatchObject({ state: "idle" });
  });
});
