import { SCOPES } from "@khala/contracts";
import { describe, expect, test } from "vitest";
import {
  hasScope,
  requireSameSubject,
  requireScope,
  requireTopic,
  rightsFingerprint,
  type Viewer,
} from "./claims.ts";

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

describe("scopes and topics", () => {
  test("a scope that the token carries is granted, another one is missing_scope and named", () => {
    expect(hasScope(viewer(), SCOPES.ops)).toBe(true);
    expect(() => requireScope(viewer(), SCOPES.ops)).not.toThrow();
    expect(() => requireScope(viewer(), SCOPES.chat)).toThrow(
      expect.objectContaining({ code: "missing_scope", message: expect.stringContaining('"chat"') }),
    );
  });

  test("a topic that the token does not carry is forbidden_topic and named", () => {
    expect(() => requireTopic(viewer(), "runtime.run_summaries")).not.toThrow();
    expect(() => requireTopic(viewer(), "lightning.control_plane")).toThrow(
      expect.objectContaining({
        code: "forbidden_topic",
        message: expect.stringContaining('"lightning.control_plane"'),
      }),
    );
  });

  test("a right such as ops is never a topic", () => {
    expect(() => requireTopic(viewer(), SCOPES.ops)).toThrow(
      expect.objectContaining({ code: "forbidden_topic" }),
    );
  });

  test("a hostile topic name is quoted and cut in the message", () => {
    const name = `x"\n${"y".repeat(10_000)}`;
    try {
      requireTopic(viewer(), name);
      expect.unreachable();
    } catch (error) {
      const { message } = error as Error;
      expect(message).not.toContain("\n");
      expect(message.length).toBeLessThan(300);
    }
  });

  test("a refreshed token must name the same subject and the same org", () => {
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

  test("is twelve hex digits that stay the same over time", () => {
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
