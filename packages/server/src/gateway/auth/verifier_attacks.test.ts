import { createPublicKey, randomBytes } from "node:crypto";
import { CompactSign, exportSPKI } from "jose";
import { beforeAll, beforeEach, expect, test } from "vitest";
import {
  denied,
  forge,
  goodClaims,
  handClock,
  type JwksServer,
  makeKey,
  serveJwks,
  setUp,
  sign,
  type TestKey,
} from "./test_support.ts";
import type { Verifier } from "./verifier.ts";

const secret = randomBytes(32);
const HS = { alg: "HS256", kid: "hs-1" };
const clock = handClock();
const claims = (changes: Record<string, unknown> = {}) => ({ ...goodClaims(clock), ...changes });
const token = (changes: Record<string, unknown> = {}) => sign(claims(changes), HS, secret);

let rsa: TestKey;
let ec: TestKey;
let jwks: JwksServer;
beforeAll(async () => {
  rsa = await makeKey("RS256", "rs-1");
  ec = await makeKey("ES256", "es-1");
  jwks = await serveJwks(rsa, ec);
  return () => jwks[Symbol.asyncDispose]();
});

let verifier: Verifier;
beforeEach(async () => {
  const secrets = { kind: "secrets", secrets: { "hs-1": secret } } as const;
  verifier = setUp(clock, secrets, { kind: "jwks_url", url: jwks.url }).verifier;
  // The same claims with a good signature are accepted, so what is refused below is refused for the attack.
  await verifier.verify(await token());
});

test("an unsigned token (alg none) is refused", async () => {
  for (const kid of ["hs-1", "rs-1", "es-1"]) {
    for (const alg of ["none", "None", "NONE", ""])
      await denied(verifier, forge({ alg, kid }, claims()), "invalid_token");
  }
});

test("an HS256 token that is signed with the public key of an RSA kid is refused", async () => {
  const pem = await exportSPKI(rsa.publicKey);
  const der = createPublicKey(pem).export({ type: "spki", format: "der" });
  for (const key of [Buffer.from(pem), Buffer.from(pem.trim()), der, Buffer.from(JSON.stringify(rsa.jwk))]) {
    await denied(verifier, await sign(claims(), { alg: "HS256", kid: "rs-1" }, key), "invalid_token");
  }
});

test("a token with the secret's kid and another algorithm is refused", async () => {
  await denied(
    verifier,
    await sign(claims(), { alg: "RS256", kid: "hs-1" }, rsa.privateKey),
    "invalid_token",
  );
  await denied(
    verifier,
    await sign(claims(), { alg: "HS512", kid: "hs-1" }, randomBytes(64)),
    "invalid_token",
  );
  await denied(
    verifier,
    await sign(claims(), { alg: "HS384", kid: "hs-1" }, Buffer.concat([secret, secret])),
    "invalid_token",
  );
});

test("a key is not used with another algorithm of its own family", async () => {
  const pss = await crypto.subtle.importKey(
    "jwk",
    { ...(await crypto.subtle.exportKey("jwk", rsa.privateKey)), alg: "PS256" },
    { name: "RSA-PSS", hash: "SHA-256" },
    false,
    ["sign"],
  );
  await denied(verifier, await sign(claims(), { alg: "PS256", kid: "rs-1" }, pss), "invalid_token");
});

test("a token signed by the key of another kid is refused", async () => {
  await denied(
    verifier,
    await sign(claims(), { alg: "RS256", kid: "es-1" }, rsa.privateKey),
    "invalid_token",
  );
  const foreign = await makeKey("ES256", "es-1");
  await denied(
    verifier,
    await sign(claims(), { alg: "ES256", kid: "es-1" }, foreign.privateKey),
    "invalid_token",
  );
});

test("a key inside the token (jwk, jku, x5c) is never used", async () => {
  const own = await makeKey("ES256", "es-1");
  await using evil = await serveJwks(own);
  for (const extra of [{ jwk: own.jwk }, { jku: evil.url }, { x5u: evil.url }, { x5c: ["MIIB"] }]) {
    await denied(
      verifier,
      await sign(claims(), { alg: "ES256", kid: "es-1", ...extra }, own.privateKey),
      "invalid_token",
    );
    await denied(
      verifier,
      await sign(claims(), { alg: "ES256", kid: "mine", ...extra }, own.privateKey),
      "invalid_token",
    );
  }
  expect(evil.requests).toBe(0);
});

test("an unknown, missing or odd kid is refused", async () => {
  for (const kid of ["nobody", "__proto__", "constructor", "toString"]) {
    await denied(verifier, await sign(claims(), { alg: "HS256", kid }, secret), "invalid_token");
  }
  await denied(verifier, await sign(claims(), { alg: "HS256" }, secret), "invalid_token");
  for (const kid of ["", 7, null, ["hs-1"], { kid: "hs-1" }]) {
    await denied(verifier, forge({ alg: "HS256", kid }, claims(), "AAAA"), "invalid_token");
  }
});

test("a changed payload, header or signature is refused", async () => {
  const [header, payload, signature] = (await token()).split(".");
  const other = forge(HS, claims({ sub: "admin" })).split(".")[1];
  await denied(verifier, `${header}.${other}.${signature}`, "invalid_token");
  await denied(verifier, `${header}.${payload}.`, "invalid_token");
  await denied(verifier, `${header}.${payload}.${Buffer.alloc(32).toString("base64url")}`, "invalid_token");
  await denied(
    verifier,
    `${forge({ ...HS, typ: "x" }, {}).split(".")[0]}.${payload}.${signature}`,
    "invalid_token",
  );
});

test("critical headers and unencoded payloads are refused", async () => {
  await denied(verifier, forge({ ...HS, crit: ["exp"], exp: 1 }, claims(), "AAAA"), "invalid_token");
  await denied(verifier, forge({ ...HS, crit: ["b64"], b64: false }, claims(), "AAAA"), "invalid_token");
});

test("an ES256 signature of zeros is refused", async () => {
  await denied(
    verifier,
    forge({ alg: "ES256", kid: "es-1" }, claims(), Buffer.alloc(64).toString("base64url")),
    "invalid_token",
  );
});

test.each([
  "x",
  "a.b",
  "a.b.c",
  "a.b.c.d",
  "..",
  "e30.e30.e30",
  "bnVsbA.bnVsbA.",
  "W10.W10.",
  "🙂.🙂.🙂",
  "undefined",
  "a.b.c.d.e",
])("text that is not a JWT is invalid_token: %s", async (text) => {
  await denied(verifier, text, "invalid_token");
});

test("a signed payload that is not an object is refused", async () => {
  for (const payload of ["null", "[]", "7", "", "{"]) {
    const jws = await new CompactSign(Buffer.from(payload)).setProtectedHeader(HS).sign(secret);
    await denied(verifier, jws, "invalid_token");
  }
});

test("a very long token is refused without being parsed", async () => {
  await denied(verifier, await token({ padding: "x".repeat(9_000) }), "invalid_token");
});
