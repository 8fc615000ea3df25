import { mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  denied,
  type HandClock,
  handClock,
  makeKey,
  serveJwks,
  setUp,
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

describe("a key set in a file", () => {
  let folder: string;
  let path: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "khala-jwks-"));
    path = join(folder, "jwks.json");
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const write = (...keys: readonly TestKey[]) => {
    writeFileSync(`${path}.new`, JSON.stringify({ keys: keys.map((key) => key.jwk) }));
    renameSync(`${path}.new`, path);
  };

  test("is rotated without a restart: a new kid is found at once, the old one is gone", async () => {
    write(first);
    const { verifier } = setUp(clock, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(first, clock));
    write(second);
    await verifier.verify(await tokenOf(second, clock));
    await denied(verifier, await tokenOf(first, clock), "invalid_token");
  });

  test("drops a key that left the file within a second of it", async () => {
    write(first, second);
    const { verifier } = setUp(clock, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(first, clock));
    write(second);
    clock.forward(1_000);
    await denied(verifier, await tokenOf(first, clock), "invalid_token");
  });

  test("notices a new kid even if the file's times and size did not change", async () => {
    writeFileSync(path, JSON.stringify({ keys: [second.jwk] }));
    utimesSync(path, 1, 1);
    const { verifier } = setUp(clock, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(second, clock));
    writeFileSync(path, JSON.stringify({ keys: [third.jwk] }));
    utimesSync(path, 1, 1);
    await verifier.verify(await tokenOf(third, clock));
  });

  test("keeps the keys read before when it is half written or deleted, and is read again when fixed", async () => {
    write(second);
    const { keys, verifier } = setUp(clock, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(second, clock));
    writeFileSync(path, '{"keys":[{"kty"');
    clock.forward(1_000);
    await verifier.verify(await tokenOf(second, clock));
    expect(keys.problems()).toEqual([`The key set ${path} cannot be read: it is not JSON.`]);
    rmSync(path);
    clock.forward(1_000);
    await verifier.verify(await tokenOf(second, clock));
    write(third);
    clock.forward(1_000);
    await verifier.verify(await tokenOf(third, clock));
    expect(keys.problems()).toEqual([]);
  });

  test("without a key set remains a problem until it is fixed", async () => {
    write(second);
    const { keys, verifier } = setUp(clock, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(second, clock));
    writeFileSync(path, "{}");
    for (let n = 0; n < 3; n += 1) {
      clock.forward(1_000);
      await denied(verifier, await tokenOf(third, clock), "unavailable");
      expect(keys.problems()).toEqual([expect.stringContaining("not a JSON Web Key Set")]);
    }
    await verifier.verify(await tokenOf(second, clock));
  });

  test("that is missing from the start is unavailable, and the problem names the file", async () => {
    const { keys, verifier } = setUp(clock, { kind: "jwks_file", path });
    await denied(verifier, await tokenOf(first, clock), "unavailable");
    expect(keys.problems()[0]).toContain(path);
    write(first);
    clock.forward(1_000);
    await verifier.verify(await tokenOf(first, clock));
  });

  test("works beside a set behind a URL: a kid in one does not reload the other", async () => {
    write(second);
    await using jwks = await serveJwks(first);
    const { verifier } = setUp(clock, { kind: "jwks_url", url: jwks.url }, { kind: "jwks_file", path });
    await verifier.verify(await tokenOf(first, clock));
    for (let n = 0; n < 5; n += 1) await verifier.verify(await tokenOf(second, clock));
    expect(jwks.requests).toBe(1);
  });
});
