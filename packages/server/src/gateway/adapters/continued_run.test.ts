import { noAudit, testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { readAgUiContinuation } from "./ag_ui_continuation.ts";
import { readAiContinuation } from "./ai_continuation.ts";
import { continueRun } from "./continued_run.ts";

const nobody = {
  conversations: { decideCalls: () => Promise.reject(new Error("not asked")) },
  audit: noAudit,
};
const by = { viewer: testViewer(), address: "::1" };
const HALF = "\ud800";

test.each([
  ["AG-UI", readAgUiContinuation({ threadId: "c", resume: [{ interruptId: HALF, payload: true }] })],
  [
    "the AI SDK",
    readAiContinuation({
      id: "c",
      messages: [
        { role: "assistant", parts: [{ type: "tool-pay", toolCallId: HALF, approval: { approved: true } }] },
      ],
    }),
  ],
])("a call of %s whose id is no valid text is not found", async (_, continuation) => {
  await expect(continueRun(nobody, by, continuation!)).rejects.toMatchObject({ code: "not_found" });
});

test("a wrong id of a conversation is named as its protocol names it", () => {
  const resume = [{ interruptId: "call", payload: true }];
  expect(() => readAgUiContinuation({ threadId: "a b", resume })).toThrow(/^threadId must /);
  const messages = [{ role: "assistant", parts: [] }];
  expect(() => readAiContinuation({ id: "a b", messages })).toThrow(/^id must /);
});
