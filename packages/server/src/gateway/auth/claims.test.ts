import { SCOPES } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import type { Viewer } from "../../access/viewer.ts";
import { requireSameSubject, rightsFingerprint } from "./claims.ts";

const viewer = (changes: Partial<Viewer> = {}): Viewer => ({
  subject: "user-1",
  org: "org-1",
  scopes: new Set(["runtime.run_summaries", "runtime.notifications", SCOPES.ops]),
  claimsVersion: "1",
  expiresAt: 1_000,
  jti: "jti-1",
  kid: "kid-1",
  ...changes,
});

describe("refreshed tokens", () => {
  test("a refreshed token must have the same subject and org", () => {
    expect(() => requireSameSubject(viewer(), viewer({ jti: "jti-2", expiresAt: 2_000 }))).not.toThrow();
    for (const other of [{ subject: "user-2" }, { org: "org-2" }]) {
      expect(() => requireSameSubject(viewer(), viewer(other))).toThrow(
        expect.objectContaining({ code: "subject_mismatch" }),
      );
    }
  });
});

describe("the fingerprint of rights", () => {
  const base = rightsFingerprint(viewer());

  test("is twelve hex digits that do not change", () => {
    expect(base).toMatch(/^[0-9a-f]{12}$/);
    expect(rightsFingerprint(viewer())).toBe(base);
  });

  test.each<[string, Partial<Viewer>]>([
    ["expiry", { expiresAt: 9_000 }],
    ["jti", { jti: "another" }],
    ["kid", { kid: "another" }],
    [
      "the order of scopes",
      { scopes: new Set([SCOPES.ops, "runtime.notifications", "runtime.run_summaries"]) },
    ],
    [
      "scopes that are no topics",
      { scopes: new Set(["runtime.notifications", "runtime.run_summaries", "chat"]) },
    ],
  ])("does not change with %s", (_what, changes) => {
    expect(rightsFingerprint(viewer(changes))).toBe(base);
  });

  test.each<[string, Partial<Viewer>]>([
    ["the org", { org: "org-2" }],
    ["the subject", { subject: "user-2" }],
    ["the claims version", { claimsVersion: "2" }],
    ["the topics", { scopes: new Set(["runtime.run_summaries"]) }],
    ["where one name ends and the next begins", { org: "org-1user", subject: "-1" }],
  ])("changes with %s", (_what, changes) => {
    expect(rightsFingerprint(viewer(changes))).not.toBe(base);
  });
});
