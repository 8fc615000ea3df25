import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { FakeEnvironment, jwt, settled } from "../connection/test_support.ts";
import { Tokens } from "../connection/tokens.ts";
import { memory } from "../storage/memory.ts";
import { identify } from "./identity.ts";

/** A client's identity, with the tokens that a test gives. */
function identity(token: () => Promise<string>, storage = memory(), online = true) {
  const place = new FakeEnvironment();
  place.online.set(online);
  const tokens = new Tokens(token, place);
  const scopes: string[] = [];
  const failures: string[] = [];
  const find = identify(
    { url: "http://khala.test", tokens, environment: place, storage, log: () => {} },
    { onScope: (scope) => scopes.push(scope), onFailure: ({ code }) => failures.push(code) },
  );
  return { tokens, scopes, failures, find };
}

const ADA = JSON.stringify(["http://khala.test", "acme", "ada"]);
const BOB = JSON.stringify(["http://khala.test", "acme", "bob"]);
const noNetwork = () => Promise.reject(new Error("no network"));

test("takes the user from the token, which it requests only when needed", async () => {
  let asked = 0;
  const { scopes, find } = identity(async () => jwt({ jti: ++asked }));
  await settled();
  expect(asked).toBe(0);
  find();
  find();
  await settled();
  expect({ asked, scopes }).toEqual({ asked: 1, scopes: [ADA] });
});

test("without a token, assumes the last user of the device until a token names another", async () => {
  const storage = memory();
  const first = identity(async () => jwt({}), storage);
  first.find();
  await settled();
  const offline = identity(noNetwork, storage);
  offline.find();
  await settled();
  expect(offline).toMatchObject({ scopes: [ADA], failures: ["unavailable"] });

  const gate = Promise.withResolvers<string>();
  const slow = identity(() => gate.promise, storage, false);
  slow.find();
  await settled();
  expect(slow.scopes).toEqual([ADA]);
  gate.resolve(jwt({ sub: "bob" }));
  await settled();
  expect(slow.scopes).toEqual([ADA, BOB]);
});

test("shows a signed-out user nothing of the last user", async () => {
  const storage = memory();
  const first = identity(async () => jwt({}), storage);
  first.find();
  await settled();
  const out = identity(() => Promise.reject(new KhalaError("missing_authorization", "Sign in.")), storage);
  out.find();
  await settled();
  expect(out).toMatchObject({ scopes: [], failures: ["missing_authorization"] });
});
