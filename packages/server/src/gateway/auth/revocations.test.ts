import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { memoryRevocations, REVOCATION_GRACE_MS } from "./revocations.ts";
import { handClock } from "./test_support.ts";

const TTL_MS = 300_000;

test("finds a revoked token until well after it expires", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  const [one, other] = [testViewer({ jti: "one" }), testViewer({ jti: "other" })];
  expect(revocations.isRevoked(one)).toBe(false);
  await revocations.revoke({ org: "acme", jti: "one" }, clock.now() + TTL_MS);
  expect(revocations.isRevoked(one)).toBe(true);
  expect(revocations.isRevoked(other)).toBe(false);
  clock.forward(TTL_MS + 30_000);
  await revocations.revoke({ org: "acme", jti: "other" }, clock.now() + TTL_MS);
  expect(revocations.isRevoked(one)).toBe(true);
});

test("revokes a jti within the named org, or in every org without one", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  const foreign = testViewer({ org: "globex" });
  await revocations.revoke({ org: "acme", jti: foreign.jti }, clock.now() + TTL_MS);
  expect(revocations.isRevoked(foreign)).toBe(false);
  await revocations.revoke({ jti: foreign.jti }, clock.now() + TTL_MS);
  expect(revocations.isRevoked(foreign)).toBe(true);
});

test.each([
  ["a subject", { org: "acme", subject: "ada" }, ["ada of acme"]],
  ["an org", { org: "acme" }, ["ada of acme", "bob of acme"]],
])("revoking %s revokes tokens issued until then, and none of others", async (_what, what, expected) => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  const issued = () =>
    ["ada of acme", "bob of acme", "ada of globex"].map((name) => {
      const [subject, , org] = name.split(" ") as [string, string, string];
      return { name, viewer: testViewer({ subject, org, issuedAt: clock.now() }) };
    });
  const before = issued();
  await revocations.revoke(what, clock.now() + TTL_MS);
  clock.forward(1_000);
  const after = issued();
  const revoked = (tokens: typeof before) =>
    tokens.filter(({ viewer }) => revocations.isRevoked(viewer)).map(({ name }) => name);
  expect(revoked(before)).toEqual(expected);
  expect(revoked(after)).toEqual([]);
});

test("treats a token without iat as issued before", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  await revocations.revoke({ org: "acme" }, clock.now() + TTL_MS);
  clock.forward(60_000);
  expect(revocations.isRevoked(testViewer())).toBe(true);
});

test("forgets a revocation once its token can never be accepted again", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  await revocations.revoke({ jti: "one" }, clock.now() + TTL_MS);
  clock.forward(TTL_MS + REVOCATION_GRACE_MS);
  await revocations.revoke({ jti: "other" }, clock.now() + TTL_MS);
  expect(revocations.isRevoked(testViewer({ jti: "one" }))).toBe(false);
  expect(revocations.isRevoked(testViewer({ jti: "other" }))).toBe(true);
});

test("notifies every listener of a revocation until it unsubscribes, even if one throws", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  let heard = 0;
  const stopBad = revocations.onRevoked(() => {
    throw new Error("a broken listener");
  });
  const stop = revocations.onRevoked(() => void heard++);
  await expect(revocations.revoke({ jti: "one" }, clock.now())).rejects.toThrow(AggregateError);
  expect(heard).toBe(1);
  stopBad();
  await revocations.revoke({ jti: "two" }, clock.now());
  stop();
  await revocations.revoke({ jti: "three" }, clock.now());
  expect(heard).toBe(2);
});
