import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  denied,
  goodClaims,
  type HandClock,
  handClock,
  makeKey,
  serveJwks,
  setUp,
  sign,
  type TestKey,
  tokenOf,
} from "../test_support.ts";

let first: TestKey;
let second: TestKey;
let third: TestKey;
beforeAll(async () => {
  first = await makeKey("RS256", "key-1");
  second = await makeKey("ES256", "key-2");
  third = await makeKey("ES256", "key-3");
});

let clock: HandClock;
beforeEach(() => {
  clock = handClock();
});

describe("a key set behind a URL", () => {
  test("is fetched once for many tokens, also for concurrent ones", async () => {
    await using jwks = await serveJwks(first, second);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    const tokens = [await tokenOf(first, clock), await tokenOf(second, clock)];
    await Promise.all([...tokens, ...tokens, ...tokens].map((token) => verifier.verify(token)));
    expect(jwks.requests).toBe(1);
  });

  test("is rotated without a restart: the new kid works at once, the old one is gone", async () => {
    await using jwks = await serveJwks(first);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    const old = await tokenOf(first, clock);
    await verifier.verify(old);
    jwks.publish(second);
    await verifier.verify(await tokenOf(second, clock));
    // It was remembered, and is refused all the same: its key left the set.
    await denied(verifier, old, "invalid_token");
  });

  test("drops a removed key when the set is ten minutes old, without a new kid", async () => {
    await using jwks = await serveJwks(first, second);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    jwks.publish(second);
    clock.forward(599_000);
    await verifier.verify(await tokenOf(first, clock));
    clock.forward(1_000);
    await denied(verifier, await tokenOf(first, clock), "invalid_token");
  });

  test("a replaced key of a kid invalidates remembered tokens of the old key", async () => {
    await using jwks = await serveJwks(second);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    const stolen = await tokenOf(second, clock);
    await verifier.verify(stolen);
    jwks.publish(await makeKey("ES256", second.kid), third);
    await verifier.verify(await tokenOf(third, clock));
    await denied(verifier, stolen, "invalid_token");
  });

  test("invented kids cause a few fetches, not one each, and delay a rotation only briefly", async () => {
    await using jwks = await serveJwks(first);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    for (let n = 0; n < 20; n += 1) {
      const invented = await sign(
        goodClaims(clock),
        { alg: "ES256", kid: `stranger-${n}` },
        third.privateKey,
      );
      await denied(verifier, invented, "invalid_token");
    }
    expect(jwks.requests).toBe(4);
    jwks.publish(second);
    clock.forward(10_000);
    await verifier.verify(await tokenOf(second, clock));
    expect(jwks.requests).toBe(5);
  });

  test("concurrent tokens of a new kid share one fetch and are all accepted", async () => {
    await using jwks = await serveJwks(first);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    jwks.publish(second);
    await Promise.all(Array.from({ length: 20 }, async () => verifier.verify(await tokenOf(second, clock))));
    expect(jwks.requests).toBeLessThanOrEqual(4);
  });

  test("that is down continues with the keys read before, and recovers", async () => {
    await using jwks = await serveJwks(first);
    const { keys, verifier, reports } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    jwks.answer = { status: 503, body: "" };
    clock.forward(24 * 3_600_000);
    await verifier.verify(await tokenOf(first, clock));
    await verifier.verify(await tokenOf(first, clock));
    expect(keys.problems()).toEqual([expect.stringContaining("HTTP 503")]);
    // A kid that is not known may be a new one: the server cannot know, so the client is asked to retry.
    await denied(verifier, await tokenOf(second, clock), "unavailable");
    expect(reports).toEqual(keys.problems());
    jwks.publish(first, second);
    clock.forward(10_000);
    await verifier.verify(await tokenOf(second, clock));
    expect(keys.problems()).toEqual([]);
  });

  test("that is down and then hangs delays no token of a known key", async () => {
    await using jwks = await serveJwks(first);
    // Longer than the test may take: waiting for the answer would fail it.
    const { keys, verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url, timeoutMs: 600_000 });
    await verifier.verify(await tokenOf(first, clock));
    jwks.answer = { status: 503, body: "" };
    clock.forward(600_000);
    await verifier.verify(await tokenOf(first, clock));
    expect(keys.problems()).toHaveLength(1);
    jwks.hang = true;
    clock.forward(60_000);
    await verifier.verify(await tokenOf(first, clock));
    await verifier.verify(await tokenOf(first, clock));
  });

  test("that is down from the start is unavailable, is retried slowly, and works once it is up", async () => {
    await using jwks = await serveJwks(first);
    jwks.answer = { status: 500, body: "" };
    const { keys, verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await keys.load();
    expect(keys.problems()).toHaveLength(1);
    for (let n = 0; n < 5; n += 1) {
      await expect(verifier.verify(await tokenOf(first, clock))).rejects.toEqual(
        expect.objectContaining({ code: "unavailable", details: { retry_after_ms: 1_000 } }),
      );
    }
    expect(jwks.requests).toBe(1);
    jwks.publish(first);
    clock.forward(1_000);
    await verifier.verify(await tokenOf(first, clock));
  });

  test("with nothing listening, or too slow from the start, is unavailable", async () => {
    const jwks = await serveJwks(first);
    jwks.hang = true;
    const slow = setUp(clock, { kind: "jwks_url", url: jwks.url, timeoutMs: 50 });
    await denied(slow.verifier, await tokenOf(first, clock), "unavailable");
    await jwks[Symbol.asyncDispose]();
    const gone = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await denied(gone.verifier, await tokenOf(first, clock), "unavailable");
    expect(gone.keys.problems()[0]).toContain("ECONNREFUSED");
  });

  test.each([
    ["no JSON", { status: 200, body: "<html>" }],
    ["no key set", { status: 200, body: "[]" }],
    ["too much", { status: 200, body: `{"keys":[],"x":"${"x".repeat(1_100_000)}"}` }],
    ["too many keys", { status: 200, body: JSON.stringify({ keys: Array(101).fill({}) }) }],
  ])("that answers with %s is a failure, and keeps the keys read before", async (_what, answer) => {
    await using jwks = await serveJwks(first);
    const { keys, verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    jwks.answer = answer;
    clock.forward(600_000);
    await verifier.verify(await tokenOf(first, clock));
    expect(keys.problems()).toHaveLength(1);
  });

  test("that redirects is not followed", async () => {
    await using elsewhere = await serveJwks(first);
    await using jwks = await serveJwks();
    jwks.answer = { status: 302, body: "", headers: { location: elsewhere.url } };
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await denied(verifier, await tokenOf(first, clock), "unavailable");
    expect(elsewhere.requests).toBe(0);
  });

  test("a clock that is set back does not freeze the set", async () => {
    await using jwks = await serveJwks(first);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(first, clock));
    jwks.publish(second);
    clock.forward(-30 * 86_400_000);
    await denied(verifier, await tokenOf(first, clock), "invalid_token");
  });

  test("leaves credentials of the URL out of reports", async () => {
    await using jwks = await serveJwks();
    jwks.answer = { status: 401, body: "" };
    const { keys, reports } = setUp(clock, { kind: "jwks_url", url: `${jwks.url}?api_key=hunter2` });
    await keys.load();
    expect(reports.join()).toContain("HTTP 401");
    expect(reports.join()).not.toContain("hunter2");
  });

  test("a URL of another kind is refused at the start", () => {
    expect(() => setUp(clock, { kind: "jwks_url", url: "file:///etc/keys" })).toThrow(/https:/);
    expect(() => setUp(clock, { kind: "jwks_url", url: "keys" })).toThrow(/https:/);
  });
});
