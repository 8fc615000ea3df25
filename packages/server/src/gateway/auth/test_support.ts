import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { KhalaError } from "@khala/contracts";
import { exportJWK, type GenerateKeyPairResult, generateKeyPair, type JWK, SignJWT } from "jose";
import type { Clock } from "../../kit/clock.ts";
import { createKeyring, type Keyring, type KeySource } from "./keys/keys.ts";
import { memoryRevocations } from "./revocations.ts";
import { createVerifier, type Verifier } from "./verifier.ts";

/** A clock that only the test moves. */
export interface HandClock extends Clock {
  set(ms: number): void;
  forward(ms: number): void;
}

/** A clock for tests, at a fixed moment. It has no timers, because nothing in this room waits. */
export function handClock(start = Date.UTC(2026, 0, 1)): HandClock {
  let now = start;
  return {
    now: () => now,
    after: () => {
      throw new Error("This clock has no timers.");
    },
    set(ms) {
      now = ms;
    },
    forward(ms) {
      now += ms;
    },
  };
}

/** A real key pair with its public half as a JWK. */
export interface TestKey extends GenerateKeyPairResult {
  readonly kid: string;
  readonly alg: "RS256" | "ES256";
  readonly jwk: JWK;
}

/** Makes a key pair. */
export async function makeKey(alg: "RS256" | "ES256", kid: string): Promise<TestKey> {
  const pair = await generateKeyPair(alg, { extractable: true });
  return { ...pair, kid, alg, jwk: { ...(await exportJWK(pair.publicKey)), kid, alg, use: "sig" } };
}

/** Claims of a good token at the clock's moment. */
export function goodClaims(clock: Clock): Record<string, unknown> {
  const now = Math.floor(clock.now() / 1000);
  return {
    sub: "user-1",
    oa_org_id: "org-1",
    oa_sync_scopes: ["runtime.run_summaries"],
    oa_claims_version: 3,
    jti: "jti-1",
    iat: now,
    exp: now + 300,
  };
}

/** Signs claims; a claim that is undefined is left out. */
export function sign(
  claims: Record<string, unknown>,
  header: { readonly alg: string; readonly kid?: string; readonly [name: string]: unknown },
  key: Parameters<SignJWT["sign"]>[0],
): Promise<string> {
  return new SignJWT(claims).setProtectedHeader(header).sign(key);
}

/** A JWT built by hand, with any signature. */
export function forge(header: unknown, claims: unknown, signature = ""): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part(header)}.${part(claims)}.${signature}`;
}

/** A server of a key set, whose answer can be changed while it runs. */
export interface JwksServer extends AsyncDisposable {
  readonly url: string;
  answer: { status: number; body: string; headers?: Record<string, string> };
  /** When set, requests are taken and never answered. */
  hang: boolean;
  requests: number;
  publish(...keys: readonly TestKey[]): void;
}

/** Serves a key set on a real port. */
export async function serveJwks(...keys: readonly TestKey[]): Promise<JwksServer> {
  const server = createServer((_request, response) => {
    jwks.requests += 1;
    if (jwks.hang) return;
    response.writeHead(jwks.answer.status, { "content-type": "application/json", ...jwks.answer.headers });
    response.end(jwks.answer.body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const jwks: JwksServer = {
    url: `http://127.0.0.1:${port}/.well-known/jwks.json`,
    answer: { status: 200, body: "" },
    hang: false,
    requests: 0,
    publish(...published) {
      jwks.answer = { status: 200, body: JSON.stringify({ keys: published.map((key) => key.jwk) }) };
    },
    async [Symbol.asyncDispose]() {
      if (!server.listening) return;
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
  jwks.publish(...keys);
  return jwks;
}

/** A verifier with the keys behind it, and what was reported about them. */
export interface Stand {
  readonly keys: Keyring;
  readonly verifier: Verifier;
  readonly reports: string[];
}

/** Sets up a verifier over key sources. */
export function setUp(clock: Clock, ...sources: readonly KeySource[]): Stand {
  const reports: string[] = [];
  const keys = createKeyring(sources, { clock, report: (problem) => reports.push(problem) });
  return { keys, verifier: createVerifier({ keys, revocations: memoryRevocations(clock), clock }), reports };
}

/** A good token of a key. */
export function tokenOf(key: TestKey, clock: Clock): Promise<string> {
  return sign(goodClaims(clock), { alg: key.alg, kid: key.kid }, key.privateKey);
}

/** Verifies a token that must be refused with the code; no part of the refusal may contain the token. */
export async function denied(
  verifier: Verifier,
  token: string | undefined,
  code: string,
): Promise<KhalaError> {
  const error: unknown = await verifier.verify(token).then(
    () => new Error(`The token was accepted, ${code} was expected.`),
    (reason: unknown) => reason,
  );
  if (!(error instanceof KhalaError) || error.code !== code) throw error;
  if (token && JSON.stringify([error.message, error.details, String(error.cause ?? "")]).includes(token)) {
    throw new Error("The refusal contains the token.");
  }
  return error;
}
