import { expect, test } from "vitest";
import { memoryRevocations, REVOCATION_GRACE_MS } from "./revocations.ts";
import { handClock } from "./test_support.ts";

test("a revoked token is found until well after it has expired", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  expect(revocations.isRevoked("jti-1")).toBe(false);
  await revocations.revoke("jti-1", clock.now() + 300_000);
  expect(revocations.isRevoked("jti-1")).toBe(true);
  expect(revocations.isRevoked("jti-2")).toBe(false);

  clock.forward(300_000 + 30_000);
  await revocations.revoke("jti-2", clock.now() + 300_000);
  expect(revocations.isRevoked("jti-1")).toBe(true);
});

test("a revocation is forgotten once its token can never be accepted again", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock, { maxEntries: 1 });
  await revocations.revoke("jti-1", clock.now() + 300_000);
  clock.forward(300_000 + REVOCATION_GRACE_MS);
  await revocations.revoke("jti-2", clock.now() + 300_000);
  expect(revocations.isRevoked("jti-1")).toBe(false);
  expect(revocations.isRevoked("jti-2")).toBe(true);
});

test("a full list refuses a revocation and drops none", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock, { maxEntries: 2 });
  await revocations.revoke("jti-1", clock.now() + 300_000);
  await revocations.revoke("jti-2", clock.now() + 300_000);
  await expect(revocations.revoke("jti-3", clock.now() + 300_000)).rejects.toMatchObject({
    code: "limit_exceeded",
  });
  await revocations.revoke("jti-1", clock.now() + 600_000);
  expect(revocations.isRevoked("jti-1")).toBe(true);
  expect(revocations.isRevoked("jti-2")).toBe(true);
});

test("every listener hears of a revocation, also when one of them throws, until it stops listening", async () => {
  const clock = handClock();
  const revocations = memoryRevocations(clock);
  const heard: string[] = [];
  const stopBad = revocations.onRevoked(() => {
    throw new Error("a broken listener");
  });
  const stop = revocations.onRevoked((jti) => heard.push(jti));

  await expect(revocations.revoke("jti-1", clock.now())).rejects.toThrow(AggregateError);
  expect(heard).toEqual(["jti-1"]);
  expect(revocations.isRevoked("jti-1")).toBe(true);

  stopBad();
  await revocations.revoke("jti-2", clock.now());
  stop();
  await revocations.revoke("jti-3", clock.now());
  expect(heard).toEqual(["jti-1", "jti-2"]);
});
