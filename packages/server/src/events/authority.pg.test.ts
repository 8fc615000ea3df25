import { KhalaError } from "@khala/contracts";
import { testContext } from "@khala/test-support/kit/context";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Database, openDatabase } from "../database/database.ts";
import { type Append, type Authority, type NewEvent, openAuthority } from "./authority.ts";
import { runs, workers } from "./streams.ts";

let shared: TestDatabase;
let database: Database;
let authority: Authority;
beforeAll(async () => {
  shared = await testDatabase();
  ({ database } = shared);
  authority = openAuthority(database, await testContext());
});
afterAll(async () => {
  await authority.drain();
  await shared[Symbol.asyncDispose]();
});

let ids = 0;
const step = (name: string, event_id = `e${++ids}`): NewEvent => ({
  event_id,
  type: "run.step",
  data: { name },
});
const freshRun = () => `run-${++ids}`;
const append = (streamId: string, events: readonly NewEvent[], more: Partial<Append> = {}) =>
  authority.append({ stream: runs, streamId, events, org: "acme", actor: "ada", ...more });

const stored = (streamId: string, from = database) =>
  from.query<{ seq: bigint; event_id: string; type: string; position: bigint }>({
    text: "SELECT seq, event_id, type, position FROM runtime.events WHERE stream_id = $1 ORDER BY seq",
    values: [streamId],
  });
const names = async (streamId: string) => (await stored(streamId)).map((row) => row.event_id);
const refusal = (code: string, details = {}) =>
  expect.objectContaining({ name: "KhalaError", code, details });

test("appends events at the expected sequence, and returns the sequence of the last", async () => {
  const run = freshRun();
  expect(await append(run, [step("a"), step("b")], { expectedSeq: 0n })).toBe(2n);
  expect(await append(run, [step("c")], { expectedSeq: 2n })).toBe(3n);
  expect(await append(run, [step("d")])).toBe(4n);
  expect((await stored(run)).map((row) => row.seq)).toEqual([1n, 2n, 3n, 4n]);
});

test("refuses another expected sequence as a conflict that names the current one", async () => {
  const run = freshRun();
  await append(run, [step("a"), step("b")]);
  for (const expectedSeq of [0n, 1n, 3n])
    await expect(append(run, [step("c")], { expectedSeq })).rejects.toEqual(
      refusal("sequence_conflict", { current_seq: "2" }),
    );
  await expect(append(freshRun(), [step("a")], { expectedSeq: 1n })).rejects.toEqual(
    refusal("sequence_conflict", { current_seq: "0" }),
  );
  expect(await names(run)).toHaveLength(2);
});

test("answers a repeated request as the first time, even after later appends", async () => {
  const run = freshRun();
  const first = [step("a"), step("b")];
  expect(await append(run, first, { expectedSeq: 0n })).toBe(2n);
  await append(run, [step("c")]);
  expect(await append(run, first, { expectedSeq: 0n })).toBe(2n);
  expect(await append(run, first)).toBe(2n);
  expect(await append(run, [first[0]!])).toBe(1n);
  expect(await names(run)).toHaveLength(3);
});

test("the same event ids in another stream are different events", async () => {
  const [one, two] = [freshRun(), freshRun()];
  await append(one, [step("a", "same")]);
  expect(await append(two, [step("a", "same")])).toBe(1n);
  const worker = { event_id: "same", type: "worker.heartbeat" };
  expect(await append(one, [worker], { stream: workers })).toBe(1n);
});

test("refuses a request that repeats only some of its events", async () => {
  const run = freshRun();
  const [a, b] = [step("a"), step("b")];
  await append(run, [a]);
  await expect(append(run, [a, b])).rejects.toEqual(refusal("event_conflict", { current_seq: "1" }));
  expect(await names(run)).toEqual([a.event_id]);
});

test("two orgs use the same run and event ids, and never notice", async () => {
  const run = freshRun();
  const first = step("a");
  expect(await append(run, [first, step("b")])).toBe(2n);
  const eve = { org: "globex", actor: "eve", ownerOnly: true, expectedSeq: 0n };
  expect(await append(run, [first], eve)).toBe(1n);
  const globex = { org: "globex", kind: runs.kind, streamId: run };
  expect(await authority.find(globex)).toEqual({ owner: "eve", seq: 1n });
  const events = await authority.readStream(globex, 0n, 10);
  expect(events).toMatchObject([{ org: "globex", owner: "eve", actor: "eve", eventId: first.event_id }]);
});

test("a run of another owner looks like a missing one, and is not changed", async () => {
  const run = freshRun();
  const first = step("a");
  await append(run, [first]);
  for (const events of [[step("b")], [first]])
    await expect(append(run, events, { actor: "eve", ownerOnly: true })).rejects.toEqual(
      refusal("not_found"),
    );
  expect(await names(run)).toEqual([first.event_id]);
  expect(await append(run, [step("c")], { actor: "service" })).toBe(2n);
  expect(await append(run, [step("d")], { ownerOnly: true })).toBe(3n);
});

test("refuses an event id that is reused with another type or other data", async () => {
  const run = freshRun();
  const first = step("a");
  await append(run, [first, step("b")]);
  const conflict = refusal("event_conflict", { current_seq: "2" });
  await expect(append(run, [{ ...first, data: { name: "other" } }])).rejects.toEqual(conflict);
  await expect(append(run, [{ ...first, type: "run.stopped", data: {} }])).rejects.toEqual(conflict);
  expect(await append(run, [first])).toBe(1n);
});

test("reads the events of a stream in pages, in order", async () => {
  const run = freshRun();
  const events = Array.from({ length: 5 }, (_, i) => step(`s${i}`));
  await append(run, events.slice(0, 2));
  await append(freshRun(), [step("other")]);
  await append(run, events.slice(2));
  const name = { org: "acme", kind: runs.kind, streamId: run };
  const pages = [await authority.readStream(name, 0n, 3), await authority.readStream(name, 3n, 3)];
  expect(pages.map((page) => page.map(({ seq }) => seq))).toEqual([
    [1n, 2n, 3n],
    [4n, 5n],
  ]);
  expect(pages.flat().map(({ eventId }) => eventId)).toEqual(events.map((event) => event.event_id));
  expect(await authority.find({ ...name, streamId: "none" })).toBeUndefined();
});

test("keeps the org and owner of the run's creator, and the actor of each append", async () => {
  const run = freshRun();
  await append(run, [step("a")]);
  await append(run, [step("b")], { actor: "bob", trace: "00-trace" });
  const rows = await database.query({
    text: "SELECT org_id, owner, actor, trace FROM runtime.events WHERE stream_id = $1 ORDER BY seq",
    values: [run],
  });
  expect(rows).toEqual([
    { org_id: "acme", owner: "ada", actor: "ada", trace: null },
    { org_id: "acme", owner: "ada", actor: "bob", trace: "00-trace" },
  ]);
});

test.each(["run.exploded", "worker.heartbeat", "", "constructor", "__proto__", "toString"])(
  "refuses an unknown event type with the known ones: %j",
  async (type) => {
    const run = freshRun();
    await expect(append(run, [step("a"), { event_id: "x", type }])).rejects.toMatchObject({
      code: "unknown_event_type",
      details: { field: "events[1].type" },
      message: expect.stringContaining("run.started"),
    });
    expect(await names(run)).toEqual([]);
  },
);

test.each<[string, NewEvent, string]>([
  ["data of another shape", { event_id: "x", type: "run.step", data: { name: 5 } }, "events[1].data"],
  [
    "a field that is not known",
    { event_id: "x", type: "run.step", data: { name: "a", nam: 1 } },
    "events[1].data",
  ],
  ["a field that is missing", { event_id: "x", type: "run.step", data: {} }, "events[1].data.name"],
  ["data that is a list", { event_id: "x", type: "run.started", data: [] }, "events[1].data"],
  [
    "half a surrogate pair",
    { event_id: "x", type: "run.started", data: { title: "\ud800" } },
    "events[1].data",
  ],
  [
    "half a surrogate pair deep inside",
    { event_id: "x", type: "run.completed", data: { result: { a: ["\\", "\udc00"] } } },
    "events[1].data",
  ],
  [
    "half a surrogate pair in a key",
    { event_id: "x", type: "run.completed", data: { result: { "\ud800": 1 } } },
    "events[1].data",
  ],
  ["a NUL character", { event_id: "x", type: "run.started", data: { audience: ["a\0"] } }, "events[1].data"],
  ["an event_id with a space", { event_id: "x y", type: "run.stopped" }, "events[1].event_id"],
  ["an event_id that is too long", { event_id: "x".repeat(201), type: "run.stopped" }, "events[1].event_id"],
  ["an event_id that is used twice", { event_id: "twice", type: "run.stopped" }, "events[1].event_id"],
])("%s is refused with its place, and nothing of the request is written", async (_, bad, field) => {
  const run = freshRun();
  await expect(append(run, [step("a", "twice"), bad])).rejects.toEqual(refusal("invalid_request", { field }));
  expect(await names(run)).toEqual([]);
});

test("keeps text that only looks like half a surrogate pair or NUL", async () => {
  const run = freshRun();
  const result = { text: "\\ud800 \\\\u0000 \u{1f600} \\", "\\u0000": true };
  await append(run, [{ event_id: "x", type: "run.completed", data: { result } }]);
  const events = await authority.read(0n, 10_000);
  expect(events.find((event) => event.streamId === run)?.data).toEqual({ result });
});

test("refuses no events, too many events and an invalid run id", async () => {
  await expect(append(freshRun(), [])).rejects.toEqual(refusal("invalid_request", { field: "events" }));
  const many = Array.from({ length: 1_001 }, () => step("a"));
  await expect(append(freshRun(), many)).rejects.toEqual(refusal("invalid_request", { field: "events" }));
  for (const id of ["", "a/b", "ä", "x".repeat(201), "a\0b"])
    await expect(append(id, [step("a")])).rejects.toEqual(refusal("invalid_request", { field: "run_id" }));
  expect(await append(freshRun(), many.slice(1))).toBe(1_000n);
});

test("stores data as a JSON object, not as text with JSON in it", async () => {
  const run = freshRun();
  await append(run, [step('with "quotes"'), { event_id: "none", type: "run.stopped" }]);
  const rows = await database.query({
    text: `SELECT json_typeof(data) AS type, data->>'name' AS name FROM runtime.events WHERE stream_id = $1 ORDER BY seq`,
    values: [run],
  });
  expect(rows).toEqual([
    { type: "object", name: 'with "quotes"' },
    { type: "object", name: null },
  ]);
});

test("of many concurrent appends at the same sequence of a run exactly one wins, from two processes too", async () => {
  const run = freshRun();
  const other = openDatabase({
    url: shared.url,
    poolSize: 4,
    connectTimeoutMs: 60_000,
    log: (await testContext()).log,
  });
  try {
    const second = openAuthority(other, await testContext({ seed: 2 }));
    for (let seq = 0n; seq < 5n; seq++) {
      const tries = Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? authority : second)
          .append({
            stream: runs,
            streamId: run,
            events: [step("x")],
            expectedSeq: seq,
            org: "acme",
            actor: "ada",
          })
          .then(
            (answer) => answer,
            (error: KhalaError) => error.code,
          ),
      );
      const answers = await Promise.all(tries);
      expect(answers.filter((answer) => answer === seq + 1n)).toHaveLength(1);
      expect(answers.filter((answer) => answer === "sequence_conflict")).toHaveLength(19);
    }
    expect((await stored(run)).map((row) => row.seq)).toEqual([1n, 2n, 3n, 4n, 5n]);
  } finally {
    await other.close();
  }
});

test("a bad request in a shared transaction fails alone", async () => {
  const good = Array.from({ length: 30 }, freshRun);
  const bad = freshRun();
  // An actor that PostgreSQL cannot store, and no check of ours refuses.
  const requests = [
    ...good.slice(0, 15).map((run) => append(run, [step("a")])),
    append(bad, [step("a")], { actor: "nul\0" }),
    ...good.slice(15).map((run) => append(run, [step("a")])),
  ];
  const outcomes = await Promise.allSettled(requests);
  expect(outcomes.map((outcome) => outcome.status)).toEqual([
    ...good.slice(0, 15).map(() => "fulfilled"),
    "rejected",
    ...good.slice(15).map(() => "fulfilled"),
  ]);
  expect(await names(bad)).toEqual([]);
  for (const run of good) expect(await names(run)).toHaveLength(1);
});

test("a refused request leaves no gap: positions are dense, in the order of commits", async () => {
  await using own = await testDatabase({ poolSize: 6 });
  const log = openAuthority(own.database, await testContext());
  const requests = Array.from({ length: 200 }, (_, i) =>
    log.append({
      stream: runs,
      streamId: `r${i % 40}`,
      events: [step("a"), step("b")],
      org: "acme",
      actor: "ada",
      ...(i % 7 === 0 && { expectedSeq: 77n }),
    }),
  );
  await Promise.allSettled(requests);
  const events = await log.read(0n, 10_000);
  expect(events.map((event) => event.position)).toEqual(events.map((_, i) => BigInt(i) + 1n));
  expect(await log.head()).toBe(BigInt(events.length));
  for (const own of Map.groupBy(events, (event) => event.streamId).values())
    expect(own.map((event) => event.seq)).toEqual(own.map((_, i) => BigInt(i) + 1n));
});

test("repeats a commit whose answer was lost, without appending twice", async () => {
  let lost = 0;
  const flaky: Database = {
    ...database,
    async query(statement) {
      const rows = await database.query(statement);
      if (statement.name !== "append_in_order" || lost++ > 0) return rows as never;
      throw new KhalaError(
        "unavailable",
        "gone",
        {},
        { cause: new Error("Connection terminated unexpectedly") },
      );
    },
  };
  const run = freshRun();
  const other = openAuthority(flaky, await testContext());
  const events = [step("a"), step("b")];
  expect(
    await other.append({ stream: runs, streamId: run, events, expectedSeq: 0n, org: "acme", actor: "ada" }),
  ).toBe(2n);
  expect(lost).toBe(2);
  expect(await names(run)).toHaveLength(2);
});

test("fails an append as retryable unavailable while the database is down", async () => {
  const away = openDatabase({
    url: "postgres://127.0.0.1:1/none",
    poolSize: 1,
    connectTimeoutMs: 100,
    log: (await testContext()).log,
  });
  const other = openAuthority(away, await testContext());
  const error = await other
    .append({ stream: runs, streamId: "r", events: [step("a")], org: "acme", actor: "ada" })
    .catch((caught: KhalaError) => caught);
  expect(error).toMatchObject({ code: "unavailable", meaning: { retryable: true } });
  await away.close();
});

test("a read finds every earlier commit, even while an older read is running", async () => {
  const held = Promise.withResolvers<void>();
  const began = Promise.withResolvers<void>();
  let reads = 0;
  const slow: Database = {
    ...database,
    async query(statement) {
      const rows = await database.query(statement);
      if (statement.name === "authority_read" && ++reads === 1) {
        began.resolve();
        await held.promise;
      }
      return rows as never;
    },
  };
  const other = openAuthority(slow, await testContext());
  const head = await other.head();
  const before = Promise.all([other.read(head, 10), other.read(head, 10)]);
  await began.promise;
  await append(freshRun(), [step("a")]);
  expect(await other.read(head, 10)).toHaveLength(1);
  held.resolve();
  expect(await before).toEqual([[], []]);
  expect(reads).toBe(2);
});
