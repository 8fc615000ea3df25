import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { decideAppend, type LockedStream } from "./appends.ts";
import type { Append, Claim } from "./stream.ts";

const stream = (changes: Partial<LockedStream> = {}): LockedStream => ({
  id: 1n,
  owner: "ada",
  contentType: "text/plain",
  ttlS: undefined,
  expiresAt: undefined,
  tail: 10n,
  writtenAt: 5n,
  now: 6n,
  closed: false,
  gone: false,
  seq: undefined,
  closedBy: undefined,
  ...changes,
});

const append = (changes: Partial<Append> = {}): Append => ({
  name: { caller: testViewer(), path: "a" },
  data: Buffer.from("four"),
  contentType: "text/plain",
  close: false,
  seq: undefined,
  claim: undefined,
  ...changes,
});

const claim = (epoch: bigint, seq: bigint): Claim => ({ producer: "p", epoch, seq });

test("an append moves the tail by its bytes", () => {
  expect(decideAppend(stream(), undefined, append())).toEqual({
    kind: "appended",
    id: 1n,
    tail: 14n,
    writtenAt: 6n,
    closed: false,
  });
});

test("compares content types without parameters and case", () => {
  expect(decideAppend(stream(), undefined, append({ contentType: "Text/Plain; charset=utf-8" })).kind).toBe(
    "appended",
  );
  expect(decideAppend(stream(), undefined, append({ contentType: "text/html" }))).toEqual({
    kind: "other_type",
    contentType: "text/plain",
  });
});

test.each([
  ["the first of a producer begins at 0", undefined, claim(0n, 0n), { kind: "appended" }],
  [
    "a producer that begins later has a gap",
    undefined,
    claim(0n, 3n),
    { kind: "gap", expected: 0n, received: 3n },
  ],
  ["the next one is accepted", claim(1n, 4n), claim(1n, 5n), { kind: "appended" }],
  ["the same one again counts once", claim(1n, 4n), claim(1n, 4n), { kind: "duplicate", seq: 4n }],
  ["an older one was accepted before", claim(1n, 4n), claim(1n, 0n), { kind: "duplicate", seq: 4n }],
  ["one too far is a gap", claim(1n, 4n), claim(1n, 6n), { kind: "gap", expected: 5n, received: 6n }],
  ["an older epoch is fenced off", claim(2n, 0n), claim(1n, 9n), { kind: "stale_epoch", epoch: 2n }],
  ["a new epoch begins at 0", claim(1n, 4n), claim(2n, 0n), { kind: "appended" }],
  ["a new epoch that begins elsewhere is wrong", claim(1n, 4n), claim(2n, 5n), { kind: "epoch_not_at_zero" }],
])("%s", (_promise, last, next, outcome) => {
  expect(decideAppend(stream(), last, append({ claim: next }))).toMatchObject(outcome);
});

test("recognises a repeated append even though its Stream-Seq is already used", () => {
  const repeated = append({ claim: claim(0n, 0n), seq: "a" });
  expect(decideAppend(stream({ seq: "a" }), claim(0n, 0n), repeated)).toMatchObject({ kind: "duplicate" });
});

test("compares Stream-Seq by bytes, not as numbers", () => {
  expect(decideAppend(stream({ seq: "9" }), undefined, append({ seq: "10" }))).toEqual({
    kind: "seq_not_above",
    last: "9",
  });
  expect(decideAppend(stream({ seq: "B" }), undefined, append({ seq: "a" })).kind).toBe("appended");
});

test("a closed stream refuses appends, can be closed again, and recognises the request that closed it", () => {
  const closed = stream({ closed: true, closedBy: claim(0n, 7n) });
  const nothing = { data: Buffer.alloc(0), contentType: undefined, close: true };
  expect(decideAppend(closed, undefined, append())).toEqual({
    kind: "closed",
    id: 1n,
    tail: 10n,
    writtenAt: 5n,
  });
  expect(decideAppend(closed, undefined, append(nothing))).toMatchObject({
    kind: "appended",
    tail: 10n,
    writtenAt: 5n,
    closed: true,
  });
  expect(decideAppend(closed, claim(0n, 7n), append({ claim: claim(0n, 7n) }))).toMatchObject({
    kind: "duplicate",
    closed: true,
  });
  expect(decideAppend(closed, claim(0n, 7n), append({ ...nothing, claim: claim(0n, 8n) })).kind).toBe(
    "closed",
  );
});
