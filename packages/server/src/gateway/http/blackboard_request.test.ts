import { KhalaError } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import {
  asSentAlone,
  readClaim,
  readDeadLetterQuery,
  readDecision,
  readDrafts,
  readRecent,
  readReplay,
  readReplayAll,
  readSettlement,
} from "./blackboard_request.ts";

const ID = "0198c5f4-1111-7222-8333-444455556666";

function fieldOf(read: () => unknown): string | undefined {
  try {
    read();
  } catch (error) {
    expect(error).toBeInstanceOf(KhalaError);
    expect((error as KhalaError).code).toBe("invalid_request");
    return (error as KhalaError).details.field ?? "";
  }
  throw new Error("It was accepted.");
}

describe("a publication", () => {
  test("has one draft alone, or several", () => {
    const draft = { type: "Draft", payload: null };
    expect(readDrafts(draft)).toEqual({ drafts: [draft], alone: true });
    expect(readDrafts({ artifacts: [draft, draft] })).toEqual({ drafts: [draft, draft], alone: false });
  });

  test.each([
    ["no body", undefined, ""],
    ["a list", [], ""],
    ["an empty list", { artifacts: [] }, "artifacts"],
    ["no list", { artifacts: {} }, "artifacts"],
    ["too many", { artifacts: Array(1_001).fill({}) }, "artifacts"],
    ["something beside the list", { artifacts: [{}], type: "Draft" }, "type"],
  ])("%s is refused", (_, body, field) => {
    expect(fieldOf(() => readDrafts(body))).toBe(field);
  });

  test("an error in a single draft names the field without its index", () => {
    const items = [{ index: 0, field: "type", message: "is missing" }];
    const indexed = new KhalaError("invalid_request", "artifacts[0].type is missing.", {
      field: "artifacts[0].type",
      items,
    });
    expect(asSentAlone(indexed)).toMatchObject({
      message: "type is missing.",
      details: { field: "type", items },
    });
    const other = new Error("other");
    expect(asSentAlone(other)).toBe(other);
  });
});

describe("a worker's request", () => {
  test("a claim has defaults", () => {
    expect(readClaim({ worker: "w" })).toEqual({ worker: "w", max: 1, waitMs: 0 });
    expect(readClaim({ worker: "w", max: 5, wait_ms: 30_000 })).toEqual({
      worker: "w",
      max: 5,
      waitMs: 30_000,
    });
  });

  test.each([
    ["nobody asks", {}, "worker"],
    ["a name with a NUL", { worker: "a\0" }, "worker"],
    ["none", { worker: "w", max: 0 }, "max"],
    ["too many", { worker: "w", max: 101 }, "max"],
    ["half of one", { worker: "w", max: 1.5 }, "max"],
    ["too long a wait", { worker: "w", wait_ms: 30_001 }, "wait_ms"],
    ["an unknown field", { worker: "w", colour: "red" }, "colour"],
  ])("%s is refused", (_, body, field) => {
    expect(fieldOf(() => readClaim(body))).toBe(field);
  });

  test("a settlement has outputs, a failure, or nothing to publish", () => {
    const outputs = [{ type: "Review", payload: { good: true } }];
    expect(readSettlement({ outputs })).toEqual({ outputs });
    expect(readSettlement({})).toEqual({ outputs: [] });
    expect(readSettlement(undefined)).toEqual({ outputs: [] });
    const failure = { class: "ValueError", message: "no", kind: "retryable" };
    expect(readSettlement({ failure })).toEqual({ failure });
    const limited = { ...failure, kind: "rate_limited" };
    const settlement = { failure: limited, retry_after_ms: 0 };
    expect(readSettlement(settlement)).toEqual(settlement);
  });

  const failure = { class: "ValueError", message: "no", kind: "retryable" };
  test.each([
    ["both", { outputs: [{ type: "A", payload: 1 }], failure }, "outputs"],
    ["outputs that are no list", { outputs: {} }, "outputs"],
    ["an output without a type", { outputs: [{ type: "A" }, { payload: 1 }] }, "outputs[1].type"],
    ["an output with an unknown field", { outputs: [{ type: "A", colour: 1 }] }, "outputs[0].colour"],
    ["a kind that does not exist", { failure: { ...failure, kind: "sad" } }, "failure.kind"],
    ["a failure without a class", { failure: { ...failure, class: "" } }, "failure.class"],
    ["a failure without a message", { failure: { ...failure, message: "" } }, "failure.message"],
    ["a limit without its time", { failure: { ...failure, kind: "rate_limited" } }, "retry_after_ms"],
    ["a time without a limit", { failure, retry_after_ms: 5 }, "retry_after_ms"],
    ["a time alone", { retry_after_ms: 5 }, "retry_after_ms"],
    ["an unknown field", { colour: "red" }, "colour"],
  ])("a settlement with %s is refused", (_, body, field) => {
    expect(fieldOf(() => readSettlement(body))).toBe(field);
  });
});

describe("a person's request", () => {
  test("a replay may have a payload, even null", () => {
    expect(readReplay(undefined)).toBeUndefined();
    expect(readReplay({})).toBeUndefined();
    expect(readReplay({ payload: null })).toEqual({ payload: null });
    expect(fieldOf(() => readReplay({ colour: 1 }))).toBe("colour");
  });

  test("several are replayed by ids, by correlation, or all; an empty list replays none", () => {
    expect(readReplayAll(undefined)).toEqual({});
    expect(readReplayAll({ ids: [ID] })).toEqual({ ids: [ID] });
    expect(readReplayAll({ ids: [] })).toEqual({ ids: [] });
    expect(readReplayAll({ correlation_id: "c" })).toEqual({ correlationId: "c" });
    expect(fieldOf(() => readReplayAll({ correlation_id: "c", ids: [ID] }))).toBe("ids");
    expect(fieldOf(() => readReplayAll({ ids: ["x"] }))).toBe("ids");
    expect(fieldOf(() => readReplayAll({ correlation_id: "" }))).toBe("correlation_id");
  });

  test("a decision approves or rejects", () => {
    expect(readDecision({ approved: false, reason: "too long" })).toEqual({
      approved: false,
      reason: "too long",
    });
    expect(fieldOf(() => readDecision({}))).toBe("approved");
    expect(fieldOf(() => readDecision({ approved: "yes" }))).toBe("approved");
    expect(fieldOf(() => readDecision({ approved: true, reason: "" }))).toBe("reason");
  });

  test("limits of queries are bounded", () => {
    expect(readRecent({})).toEqual({ limit: 100 });
    expect(readRecent({ type: "Draft", limit: "7" })).toEqual({ type: "Draft", limit: 7 });
    expect(readDeadLetterQuery({ after: "x", correlation_id: "c" })).toEqual({
      limit: 100,
      after: "x",
      correlationId: "c",
    });
    for (const limit of ["0", "1001", "x", "", ["1", "2"]])
      expect(fieldOf(() => readRecent({ limit }))).toBe("limit");
    expect(fieldOf(() => readRecent({ type: ["A", "B"] }))).toBe("type");
    expect(fieldOf(() => readDeadLetterQuery({ after: "\0" }))).toBe("after");
  });
});
