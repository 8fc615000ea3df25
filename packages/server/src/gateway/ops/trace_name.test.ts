import { expect, test } from "vitest";
import type { EndedSpan } from "../../kit/span_ring.ts";
import { traceName } from "./trace_name.ts";

let started = 0;
const span = (name: string, attributes: EndedSpan["attributes"] = {}, failed = false): EndedSpan => ({
  traceId: "t",
  spanId: String(++started),
  parentId: undefined,
  name,
  startedAt: started,
  durationMs: 1,
  attributes,
  failed,
  message: undefined,
});
const routed = (type: string) => span("route board_artifacts", { "artifact.type": type });
const attempt = (agent: string, type: string, failed = false) =>
  span("process board_tasks", { "khala.agent": agent, "khala.attempt": 1, "artifact.type": type }, failed);

test("names a flow of artifacts by its first and last type", () => {
  expect(traceName([routed("Topic"), routed("Draft"), routed("Article")])).toBe("Topic → Article");
  expect(traceName([routed("Topic")])).toBe("Topic");
});

test("names an agent that failed for good, or was only retried", () => {
  const begun = [routed("Topic"), attempt("illustrator", "Topic", true)];
  expect(traceName([...begun, routed("Article")])).toBe("Topic → Article · illustrator failed");
  expect(traceName([...begun, attempt("illustrator", "Topic")])).toBe("Topic · illustrator retried");
});

test("names a run by its conversation, with what it published", () => {
  const run = (failed: boolean) => span("invoke_agent", { "gen_ai.conversation.id": "c1" }, failed);
  expect(traceName([span("POST /chat"), run(true)])).toBe("Conversation c1 · failed");
  expect(traceName([span("POST /chat"), run(false), routed("Topic")])).toBe("Conversation c1 · Topic");
});

test("names other traces by their topic, else by their first span", () => {
  expect(traceName([span("append"), span("project", { "khala.topic": "app.orders" })])).toBe("app.orders");
  expect(traceName([span("POST /tasks", {}, true)])).toBe("POST /tasks · failed");
});
