import { randomBytes } from "node:crypto";
import { exportJWK } from "jose";
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

describe("secrets", () => {
  test("accepts several secrets at once, each under its kid", async () => {
    const [old, current] = [randomBytes(32), "a secret that is long enough for HS256"];
    const { verifier } = setUp(clock, { kind: "secrets", secrets: { old, current } });
    await verifier.verify(await sign(goodClaims(clock), { alg: "HS256", kid: "old" }, old));
    const bytes = Buffer.from(current);
    await verifier.verify(await sign(goodClaims(clock), { alg: "HS256", kid: "current" }, bytes));
    await denied(
      verifier,
      await sign(goodClaims(clock), { alg: "HS256", kid: "old" }, bytes),
      "invalid_token",
    );
  });

  test("refuses a secret under 32 bytes with its length, without showing it", () => {
    expect(() => setUp(clock, { kind: "secrets", secrets: { weak: "hunter2hunter2" } })).toThrow(
      /"weak" has 14 bytes.*32/,
    );
    expect(() => setUp(clock, { kind: "secrets", secrets: { weak: "hunter2hunter2" } })).not.toThrow(
      /hunter2/,
    );
  });

  test("refuses to start without a key", () => {
    expect(() => setUp(clock, { kind: "secrets", secrets: {} })).toThrow(/No key to verify tokens/);
    expect(() => setUp(clock)).toThrow(/No key to verify tokens/);
  });
});

describe("which keys of a set are used", () => {
  const tryKey = async (jwk: object, key: TestKey) => {
    await using jwks = await serveJwks();
    jwks.answer = { status: 200, body: JSON.stringify({ keys: [jwk, third.jwk] }) };
    const { verifier, reports } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(third, clock));
    const used = await verifier.verify(await tokenOf(key, clock)).then(
      () => true,
      (error: unknown) => {
        expect(error).toMatchObject({ code: "invalid_token" });
        return false;
      },
    );
    return { used, reports };
  };

  test("pins a key without alg by its type", async () => {
    const { alg: _rs, ...rsa } = first.jwk;
    const { alg: _es, ...ec } = second.jwk;
    expect(await tryKey(rsa, first)).toEqual({ used: true, reports: [] });
    expect(await tryKey(ec, second)).toEqual({ used: true, reports: [] });
  });

  test("refuses a key whose alg is not the token's", async () => {
    for (const alg of ["PS256", "RS512", "ES256", "HS256", "RSA-OAEP"]) {
      expect((await tryKey({ ...first.jwk, alg }, first)).used).toBe(false);
    }
    expect((await tryKey({ ...second.jwk, alg: "RS256" }, second)).used).toBe(false);
  });

  test("skips and reports a key for encryption, a private key, and one without kid", async () => {
    const priv = { ...(await exportJWK(first.privateKey)), kid: "key-1", alg: "RS256" };
    const { kid: _kid, ...nameless } = first.jwk;
    for (const [jwk, why] of [
      [{ ...first.jwk, use: "enc" }, "use"],
      [{ ...first.jwk, key_ops: ["encrypt"] }, "key_ops"],
      [priv, "private"],
      [nameless, "kid"],
      [{ kty: "RSA", kid: "key-1", n: "AQAB", e: "AQAB" }, "bits"],
      [{ kty: "RSA", kid: "key-1" }, "key 1"],
    ] as const) {
      const { used, reports } = await tryKey(jwk, first);
      expect(used).toBe(false);
      expect(reports).toEqual([expect.stringContaining(why)]);
      expect(reports.join()).not.toContain(String(priv.d));
    }
  });

  test("never uses a secret in a set", async () => {
    const k = randomBytes(32);
    await using jwks = await serveJwks();
    const oct = { kty: "oct", kid: "shared", alg: "HS256", k: k.toString("base64url") };
    jwks.answer = { status: 200, body: JSON.stringify({ keys: [oct, third.jwk] }) };
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    const token = await sign(goodClaims(clock), { alg: "HS256", kid: "shared" }, k);
    await denied(verifier, token, "invalid_token");
  });

  test("a secret's kid wins over the same kid in a set", async () => {
    await using jwks = await serveJwks({ ...second, jwk: { ...second.jwk, kid: "shared" } });
    const { verifier } = setUp(
      clock,
      { kind: "jwks_url", url: jwks.url },
      { kind: "secrets", secrets: { shared: randomBytes(32) } },
    );
    const token = await sign(goodClaims(clock), { alg: "ES256", kid: "shared" }, second.privateKey);
    await denied(verifier, token, "invalid_token");
  });

  test("ignores the second of two keys with one kid", async () => {
    await using jwks = await serveJwks(second, { ...third, jwk: { ...third.jwk, kid: second.kid } });
    const { verifier, reports } = setUp(clock, { kind: "jwks_url", url: jwks.url });
    await verifier.verify(await tokenOf(second, clock));
    expect(reports.join()).toContain("same kid");
  });
});
