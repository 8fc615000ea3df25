import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { type ApprovalRule, checkDecider } from "./decider.ts";

const decide = (subject: string, scopes: string[], ...rules: ApprovalRule[]) =>
  checkDecider(testViewer({ subject, scopes }), rules, async () => new Set(["ada"]));

test("refuses the requester's own decision if the rule says so", async () => {
  await decide("ada", [], {});
  await decide("bob", [], { not: "requester" });
  await expect(decide("ada", [], { not: "requester" })).rejects.toMatchObject({
    code: "subject_mismatch",
    meaning: { status: 403 },
  });
});

test("requires the scope of the rule", async () => {
  const rule = { not: "requester", scope: "finance" } as const;
  await decide("bob", ["finance"], rule);
  await expect(decide("bob", ["blackboard:write"], rule)).rejects.toMatchObject({
    code: "missing_scope",
    message: expect.stringContaining('"finance"'),
  });
});

test("lets only an operator decide when the requesters cannot be found", async () => {
  const unknown = (scopes: string[]) =>
    checkDecider(testViewer({ subject: "ada", scopes }), [{ not: "requester" }], async () => undefined);
  await unknown(["ops"]);
  await expect(unknown(["blackboard:write"])).rejects.toMatchObject({
    code: "missing_scope",
    message: expect.stringContaining('"ops"'),
  });
});
