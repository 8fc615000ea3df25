import { randomBytes } from "node:crypto";
import { decodeJwt } from "jose";
import { beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../kit/ids.ts";
import { createIssuer, type IssuerOptions, type MintRequest } from "./issuer.ts";
import { createKeyring } from "./keys/keys.ts";
import { memoryRevocations } from "./revocations.ts";
import { type HandClock, handClock } from "./test_support.ts";
import { createVerifier } from "./verifier.ts";

const secret = randomBytes(32);
const request: MintRequest = { sub: "user-1", org_id: "org-1", scopes: ["runtime.run_summaries", "chat"] };

let clock: HandClock;
beforeEach(() => {
  clock = handClock();
});
const make = (options: Partial<IssuerOptions> = {}) =>
  createIssuer({ kid: "hs-1", secret, clock, newId: uuidv7(clock), ...options });

test("the verifier accepts a minted token, with the requested claims", async () => {
  const verifier = createVerifier({
    keys: createKeyring([{ kind: "secrets", secrets: { "hs-1": secret } }], {
      clock,
      report: expect.unreachable,
    }),
    revocations: memoryRevocations(clock),
    clock,
    issuer: "https://id.example",
    audience: "khala",
  });
  const issuer = make({ issuer: "https://id.example", audience: "khala" });
  const minted = await issuer.mint({ ...request, ttl_s: 120, claims_version: 4 });
  expect(minted.kid).toBe("hs-1");
  expect(minted.expires_at).toBe("2026-01-01T00:02:00.000Z");
  expect(await verifier.verify(minted.token)).toMatchObject({
    subject: "user-1",
    org: "org-1",
    scopes: new Set(request.scopes),
    claimsVersion: "4",
    expiresAt: clock.now() + 120_000,
  });
});

test("every token has its own jti, and 300 seconds by default", async () => {
  const issuer = make();
  const [one, two] = [
    decodeJwt((await issuer.mint(request)).token),
    decodeJwt((await issuer.mint(request)).token),
  ];
  expect(one.jti).not.toBe(two.jti);
  expect(one.exp! - one.iat!).toBe(300);
  expect(one.oa_claims_version).toBe(0);
});

describe("a bad request is invalid_request and names the field", () => {
  test.each<[string, Record<string, unknown>]>([
    ["sub", { sub: "" }],
    ["sub", { sub: 7 }],
    ["sub", { sub: "a\u0000" }],
    ["org_id", { org_id: undefined }],
    ["org_id", { org_id: "x".repeat(300) }],
    ["scopes", { scopes: undefined }],
    ["scopes", { scopes: "chat" }],
    ["scopes", { scopes: ["a b"] }],
    ["scopes", { scopes: [""] }],
    ["scopes", { scopes: Array.from({ length: 1_000 }, (_, n) => `topic.number_${n}`) }],
    ["ttl_s", { ttl_s: 59 }],
    ["ttl_s", { ttl_s: 901 }],
    ["ttl_s", { ttl_s: 100.5 }],
    ["ttl_s", { ttl_s: "300" }],
    ["claims_version", { claims_version: {} }],
  ])("%s: %j", async (field, changes) => {
    const bad = { ...request, ...changes } as MintRequest;
    await expect(make().mint(bad)).rejects.toEqual(
      expect.objectContaining({ code: "invalid_request", details: { field } }),
    );
  });
});

test("a secret under 32 bytes is refused, with a message that does not contain it", () => {
  expect(() => make({ secret: "hunter2hunter2" })).toThrow(/14 bytes.*32/);
  expect(() => make({ secret: "hunter2hunter2" })).not.toThrow(/hunter2/);
});
