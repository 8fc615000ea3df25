import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { settled } from "../connection/test_support.ts";
import type { RequestOptions } from "../http.ts";
import { ARRIVAL_MS, MAX_PENDING_APPENDS, openAppends } from "./appends.ts";
import type { Appends } from "./appends_port.ts";
import { answer, at, testPlane, update } from "./test_support.ts";

const PATH = "/tasks/v1/tasks";
const added = { type: "task.added", data: { title: "Write" } };

function world() {
  const hand = testPlane();
  // The plane's own HTTP is not used here: the queue gets one that a test answers.
  const { asked } = hand;
  const http = {
    request(_method: string, path: string, options: RequestOptions = {}) {
      const settle = Promise.withResolvers<ReturnType<typeof answer>>();
      asked.push({ path, options, settle });
      options.signal?.addEventListener("abort", () =>
        settle.reject(new KhalaError("unavailable", "aborted")),
      );
      return settle.promise;
    },
  };
  const { appends, drop } = openAppends({ environment: hand.place, http, sync: hand.plane });
  return { ...hand, appends: appends as unknown as Appends, drop, last: () => asked.at(-1)! };
}

const unavailable = (ms?: number) =>
  new KhalaError("unavailable", "later", ms === undefined ? {} : { retry_after_ms: ms });

test("sends an event with an id, and retries with the same id until the server answers", async () => {
  const { appends, place, asked, last } = world();
  const done = appends.append(PATH, "t1", added);
  expect(appends.pending()).toMatchObject([{ path: PATH, id: "t1", state: "sending" }]);
  await settled();
  const { body } = last().options as { body: { events: { event_id: string }[] } };
  expect(body.events).toEqual([{ event_id: expect.any(String), ...added }]);
  last().settle.reject(unavailable());
  await settled();
  expect(appends.pending()[0]!.error?.code).toBe("unavailable");
  await place.pass(500);
  expect(asked).toHaveLength(2);
  expect(last().options.body).toEqual(body);
  last().settle.resolve(answer({ seq: "1" }, 201));
  expect(await done).toEqual({ seq: "1" });
  expect(appends.pending()).toEqual([]);
});

test("keeps the order of a stream's appends, and does not make other streams wait", async () => {
  const { appends, asked, place } = world();
  const first = appends.append(PATH, "t1", added);
  const second = appends.append(PATH, "t1", { type: "task.done" });
  const other = appends.append(PATH, "t2", added);
  await settled();
  expect(asked.map(({ path }) => path)).toEqual([`${PATH}/t1/events`, `${PATH}/t2/events`]);
  asked[0]!.settle.reject(unavailable(3_000));
  asked[1]!.settle.resolve(answer({ seq: "1" }, 201));
  await other;
  await place.pass(3_000 + 500);
  asked[2]!.settle.resolve(answer({ seq: "1" }, 201));
  expect(await first).toEqual({ seq: "1" });
  await settled();
  expect(asked).toHaveLength(4);
  asked[3]!.settle.resolve(answer({ seq: "2" }, 201));
  expect(await second).toEqual({ seq: "2" });
});

test("sends a waiting append as soon as the network returns", async () => {
  const { appends, place, asked, last } = world();
  place.online.set(false);
  const done = appends.append(PATH, "t1", added);
  await settled();
  last().settle.reject(unavailable(60_000));
  await settled();
  place.online.set(true);
  await settled();
  expect(asked).toHaveLength(2);
  last().settle.resolve(answer({ seq: "1" }, 201));
  await done;
  expect(place.timers).toBe(0);
});

test("keeps an append pending until its document changes, whichever of them arrives first", async () => {
  const { appends, source, place, last } = world();
  const document = { topic: "t", key: "task:t1" };
  const first = appends.append(PATH, "t1", added, { document });
  await settled();
  const sink = source.sink();
  await sink.replace([], at(1));
  last().settle.resolve(answer({ seq: "1" }, 201));
  await first;
  expect(appends.pending()).toMatchObject([{ id: "t1", state: "arriving", document }]);
  await sink.apply([update("task:t2", 1)], at(2));
  await place.pass(20);
  expect(appends.pending()).toHaveLength(1);
  await sink.apply([update("task:t1", 1)], at(3));
  await place.pass(20);
  expect(appends.pending()).toEqual([]);

  const second = appends.append(PATH, "t1", { type: "task.done" }, { document });
  await settled();
  await sink.apply([update("task:t1", 2, null)], at(4));
  await place.pass(20);
  expect(appends.pending()).toMatchObject([{ state: "sending" }]);
  last().settle.resolve(answer({ seq: "2" }, 201));
  await second;
  expect(appends.pending()).toEqual([]);
});

test("stops waiting for a document that never changes", async () => {
  const { appends, place, last } = world();
  const done = appends.append(PATH, "t1", added, { document: { topic: "t", key: "task:t1" } });
  await settled();
  last().settle.resolve(answer({ seq: "1" }, 201));
  await done;
  await place.pass(ARRIVAL_MS);
  expect(appends.pending()).toEqual([]);
});

test("does not retry a conflict, and says what to read", async () => {
  const { appends, asked, last } = world();
  const done = appends.append(PATH, "t1", added, { expectedSeq: 3 });
  await settled();
  expect(last().options.body).toMatchObject({ expected_seq: "3" });
  last().settle.reject(new KhalaError("sequence_conflict", "It is at 5.", { current_seq: "5" }));
  const error = await done.catch((thrown: KhalaError) => thrown);
  expect(error).toMatchObject({ code: "sequence_conflict", details: { current_seq: "5" } });
  expect((error as KhalaError).message).toContain(`sync.events("${PATH}", "t1", { after: "3" })`);
  expect(appends.pending()).toEqual([]);
  const read = appends.events(PATH, "t1", { after: "3", limit: 10 });
  expect(last()).toMatchObject({ path: `${PATH}/t1/events`, options: { query: { after: "3", limit: 10 } } });
  const event = {
    seq: "4",
    event_id: "e4",
    type: "task.done",
    data: {},
    actor: "ada",
    at: "2026-11-18T00:00:00Z",
  };
  last().settle.resolve(answer({ events: [event], next: "4" }));
  expect(await read).toEqual({ events: [event], next: "4" });
  expect(asked).toHaveLength(2);
});

test("neither a refused append nor a persistent error blocks the ones behind it", async () => {
  const { appends, asked, place } = world();
  const refused = appends.append(PATH, "t1", added).catch(({ code }) => code);
  const faulty = appends.append(PATH, "t1", added).catch(({ code }) => code);
  const good = appends.append(PATH, "t1", added);
  await settled();
  asked[0]!.settle.reject(new KhalaError("invalid_request", "no"));
  expect(await refused).toBe("invalid_request");
  for (let attempt = 1; attempt <= 5; attempt++) {
    await settled();
    asked[attempt]!.settle.reject(new KhalaError("internal", "oops"));
    await place.pass(30_000);
  }
  expect(await faulty).toBe("internal");
  asked[6]!.settle.resolve(answer({ seq: "1" }, 201));
  expect(await good).toEqual({ seq: "1" });
});

test("bounds pending appends, aborts by signal, and drops them when another user signs in", async () => {
  const { appends, drop, place } = world();
  const rejected: string[] = [];
  const note = (error: Error) => void rejected.push(error instanceof KhalaError ? error.code : error.name);
  const giving = new AbortController();
  const given = appends.append(PATH, "given", added, { signal: giving.signal }).catch(note);
  giving.abort();
  await given;
  expect(rejected.splice(0)).toEqual(["AbortError"]);
  const all = Array.from({ length: MAX_PENDING_APPENDS }, (_, i) =>
    appends.append(PATH, `t${i}`, added).catch(note),
  );
  await appends.append(PATH, "more", added).catch(note);
  expect(rejected.splice(0)).toEqual(["limit_exceeded"]);
  drop(new KhalaError("subject_mismatch", "Somebody else."));
  expect(appends.pending()).toEqual([]);
  await Promise.all(all);
  expect(new Set(rejected)).toEqual(new Set(["subject_mismatch"]));
  expect(place.timers).toBe(0);
});
