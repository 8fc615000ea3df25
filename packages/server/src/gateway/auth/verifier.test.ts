import { randomBytes } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createKeyring, type Keyring } from "./keys/keys.ts";
import { memoryRevocations, type Revocations } from "./revocations.ts";
import {
  denied,
  goodClaims,
  type HandClock,
  handClock,
  type JwksServer,
  makeKey,
  serveJwks,
  sign,
  type TestKey,
} from "./test_support.ts";
import { createVerifier, type Verifier, type VerifierOptions } from "./verifier.ts";

const secret = randomBytes(32);
const HS = { alg: "HS256", kid: "hs-1" };

let rsa: TestKey;
let ec: TestKey;
let jwks: JwksServer;
beforeAll(async () => {
  rsa = await makeKey("RS256", "rs-1");
  ec = await makeKey("ES256", "es-1");
  jwks = await serveJwks(rsa, ec);
  return () => jwks[Symbol.asyncDispose]();
});

let clock: HandClock;
let keys: Keyring;
let revocations: Revocations;
let verifier: Verifier;
const make = (options: Partial<VerifierOptions> = {}) =>
  createVerifier({ keys, revocations, clock, ...options });
beforeEach(() => {
  clock = handClock();
  keys = createKeyring(
    [
      { kind: "secrets", secrets: { "hs-1": secret } },
      { kind: "jwks_url", url: jwks.url },
    ],
    { clock, report: expect.unreachable },
  );
  revocations = memoryRevocations(clock);
  verifier = make();
});

const claims = (changes: Record<string, unknown> = {}) => ({ ...goodClaims(clock), ...changes });
const seconds = (offset = 0) => Math.floor(clock.now() / 1000) + offset;
const token = (changes: Record<string, unknown> = {}) => sign(claims(changes), HS, secret);

describe("a good token", () => {
  test.each(["HS256", "RS256", "ES256"])("signed with %s identifies its subject", async (alg) => {
    const [header, key] = {
      HS256: [HS, secret] as const,
      RS256: [{ alg, kid: rsa.kid }, rsa.privateKey] as const,
      ES256: [{ alg, kid: ec.kid }, ec.privateKey] as const,
    }[alg]!;
    expect(await verifier.verify(await sign(claims(), header, key))).toEqual({
      subject: "user-1",
      org: "org-1",
      scopes: new Set(["runtime.run_summaries"]),
      claimsVersion: "3",
      issuedAt: clock.now(),
      expiresAt: clock.now() + 300_000,
      jti: "jti-1",
      kid: header.kid,
    });
  });

  test("may list its scopes as one text with spaces", async () => {
    const viewer = await verifier.verify(await token({ oa_sync_scopes: "runtime.run_summaries  chat" }));
    expect(viewer.scopes).toEqual(new Set(["runtime.run_summaries", "chat"]));
  });

  test.each([
    [undefined, "0"],
    [7, "7"],
    ["7", "7"],
    ["2026-01", "2026-01"],
  ])("with oa_claims_version %j is of version %s", async (version, expected) => {
    expect((await verifier.verify(await token({ oa_claims_version: version }))).claimsVersion).toBe(expected);
  });
});

describe("what is missing", () => {
  test.each([undefined, ""])("no token (%j) is missing_authorization", async (none) => {
    await denied(verifier, none, "missing_authorization");
  });

  test("a token without jti is missing_jti", async () => {
    await denied(verifier, await token({ jti: undefined }), "missing_jti");
  });

  test.each(["sub", "oa_org_id", "oa_sync_scopes", "exp"])(
    "a token without %s is invalid_token and names the claim",
    async (claim) => {
      expect(
        (await denied(verifier, await token({ [claim]: undefined }), "invalid_token")).message,
      ).toContain(claim);
    },
  );

  test.each([
    ["sub", 7],
    ["sub", ""],
    ["sub", "a\u0000b"],
    ["sub", "a\nb"],
    ["sub", "\ud800"],
    ["sub", "x".repeat(257)],
    ["oa_org_id", null],
    ["oa_org_id", ["org-1"]],
    ["oa_sync_scopes", [1]],
    ["oa_sync_scopes", { a: 1 }],
    ["oa_claims_version", {}],
    ["oa_claims_version", 1.5],
    ["jti", 5],
    ["exp", "tomorrow"],
    ["iat", "now"],
    ["nbf", "now"],
  ])("a %s of %j is invalid_token", async (claim, value) => {
    await denied(verifier, await sign(claims({ [claim]: value }), HS, secret), "invalid_token");
  });
});

describe("time", () => {
  test("a token is valid until its exp plus the clock skew, then token_expired", async () => {
    const good = await token();
    clock.forward(300_000 + 29_000);
    await verifier.verify(good);
    clock.forward(1_000);
    await denied(verifier, good, "token_expired");
    await denied(make(), good, "token_expired");
  });

  test("a clock that is set back makes a remembered token valid again, or not yet valid", async () => {
    const good = await token();
    await verifier.verify(good);
    clock.forward(400_000);
    await denied(verifier, good, "token_expired");
    clock.forward(-400_000);
    await verifier.verify(good);
    clock.forward(-31_000);
    await denied(verifier, good, "token_not_yet_valid");
  });

  test.each(["nbf", "iat"])(
    "a token whose %s is in the future by more than the skew is token_not_yet_valid",
    async (claim) => {
      await verifier.verify(await token({ [claim]: seconds(30) }));
      expect(
        (await denied(verifier, await token({ [claim]: seconds(31) }), "token_not_yet_valid")).message,
      ).toContain(claim);
    },
  );

  test("a token valid for longer than the limit is invalid_token and names the limit", async () => {
    await verifier.verify(await token({ exp: seconds(930) }));
    expect((await denied(verifier, await token({ exp: seconds(931) }), "invalid_token")).message).toContain(
      "900 seconds",
    );
    await denied(verifier, await token({ exp: 1e300 }), "invalid_token");
  });

  test("an old iat does not hide a long lifetime", async () => {
    await denied(verifier, await token({ iat: seconds(-100_000), exp: seconds(100) }), "invalid_token");
  });

  test("without an iat, the remaining lifetime must be within the limit", async () => {
    const good = await token({ iat: undefined, exp: seconds(930) });
    await verifier.verify(good);
    await denied(verifier, await token({ iat: undefined, exp: seconds(931) }), "invalid_token");
    clock.forward(-1_000);
    await denied(verifier, good, "invalid_token");
  });

  test("the skew and the limit are settings", async () => {
    const strict = make({ clockSkewS: 0, maxTtlS: 3_600 });
    await strict.verify(await token({ exp: seconds(3_600) }));
    await denied(strict, await token({ exp: seconds() }), "token_expired");
    await denied(strict, await token({ nbf: seconds(1) }), "token_not_yet_valid");
  });
});

describe("issuer and audience", () => {
  test("are not checked unless they are set", async () => {
    await verifier.verify(await token({ iss: "https://anyone", aud: "anything" }));
  });

  test("must match when they are set", async () => {
    const strict = make({ issuer: "https://id.example", audience: "khala" });
    await strict.verify(await token({ iss: "https://id.example", aud: "khala" }));
    await strict.verify(await token({ iss: "https://id.example", aud: ["other", "khala"] }));
    for (const wrong of [
      { aud: "khala" },
      { iss: "https://id.example" },
      { iss: "https://evil.example", aud: "khala" },
      { iss: "https://id.example", aud: "other" },
      { iss: ["https://id.example"], aud: "khala" },
    ]) {
      await denied(strict, await token(wrong), "invalid_token");
    }
  });
});

describe("revocation", () => {
  test("a revoked token is token_revoked, even if it was accepted and remembered before", async () => {
    const good = await token();
    const other = await token({ jti: "jti-2" });
    await verifier.verify(good);
    await revocations.revoke({ jti: "jti-1" }, clock.now() + 300_000);
    await denied(verifier, good, "token_revoked");
    await denied(make(), good, "token_revoked");
    await verifier.verify(other);
  });

  test("a revoked token stays revoked during the skew after its exp", async () => {
    const good = await token();
    await revocations.revoke({ jti: "jti-1" }, clock.now() + 300_000);
    clock.forward(310_000);
    await revocations.revoke({ jti: "jti-9" }, clock.now() + 300_000);
    await denied(verifier, good, "token_revoked");
  });
});

describe("remembered tokens", () => {
  test("give the same viewer, and a token that differs in one bit is verified again", async () => {
    const good = await token();
    const viewer = await verifier.verify(good);
    expect(await verifier.verify(good)).toBe(viewer);
    const last = good.at(-2) === "A" ? "B" : "A";
    await denied(verifier, `${good.slice(0, -2)}${last}${good.at(-1)}`, "invalid_token");
  });

  test("are bounded: an evicted token is verified again", async () => {
    const small = make({ remember: 2 });
    const tokens = await Promise.all(["a", "b", "c"].map((jti) => token({ jti })));
    const [first, second] = [await small.verify(tokens[0]), await small.verify(tokens[1])];
    await small.verify(tokens[2]);
    expect(await small.verify(tokens[1])).toBe(second);
    expect(await small.verify(tokens[0])).not.toBe(first);
  });

  test("can be turned off", async () => {
    const forgetful = make({ remember: 0 });
    const good = await token();
    expect(await forgetful.verify(good)).not.toBe(await forgetful.verify(good));
  });
});
