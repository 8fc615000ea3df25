import { DatabaseSync } from "node:sqlite";
import { KhalaError } from "@khala/contracts";
import { describe, expect, test, vi } from "vitest";
import { settled } from "../../connection/test_support.ts";
import type { RequestOptions } from "../../http.ts";
import type { LogEvent } from "../../log.ts";
import { oneAtATime } from "../../storage/driver_support.ts";
import { localStorage } from "../../storage/local_storage.ts";
import { memory } from "../../storage/memory.ts";
import { sqlite } from "../../storage/sqlite.ts";
import type { Storage } from "../../storage/storage.ts";
import { FakeLocalStorage } from "../../storage/test_support.ts";
import { answer, at, testPlane, update } from "../test_support.ts";
import { ARRIVAL_MS, MAX_PENDING_APPENDS, openAppends } from "./appends.ts";
import type { Appends } from "./appends_port.ts";

const PATH = "/tasks/v1/tasks";
const added = { type: "task.added", data: { title: "Write" } };

function world(storage?: Storage) {
  const hand = testPlane(storage && { storage });
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
  const { events } = hand;
  const log = (event: LogEvent) => void events.push(event);
  const own = openAppends({ environment: hand.place, http, storage: hand.storage, log, sync: hand.plane });
  return { ...hand, ...own, appends: own.appends as unknown as Appends, last: () => asked.at(-1)! };
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
  const { appends, setScope, place } = world();
  setScope("ada");
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
  setScope("bob");
  expect(appends.pending()).toEqual([]);
  await Promise.all(all);
  expect(new Set(rejected)).toEqual(new Set(["subject_mismatch"]));
  await vi.waitFor(() => expect(place.timers).toBe(0));
});

describe.each([
  ["memory", memory],
  ["localStorage", () => localStorage({ store: new FakeLocalStorage() })],
  ["SQLite", () => sqlite(new DatabaseSync(":memory:"))],
])("appends stored in %s", (_, open) => {
  /** A client of this person after those before it: what it sends, and what it shows as pending. */
  async function page(storage: Storage, scope = "ada") {
    const client = world(storage);
    client.setScope(scope);
    await stored(storage);
    await settled();
    return client;
  }
  /** Resolves when the storage has done what was asked of it. */
  async function stored(storage: Storage) {
    for (let step = 0; step < 5; step++) await storage.load("any", "any").then(settled);
  }
  const failed = (done: Promise<unknown>) => done.catch(({ code }) => code);
  const bodies = ({ asked }: ReturnType<typeof world>) =>
    asked.map(({ options }) => (options.body as { events: object[] }).events[0]);

  test("are sent by the next client, in order, with the same event ids", async () => {
    const storage = open();
    const before = await page(storage);
    const document = { topic: "t", key: "task:t1" };
    const lost = [
      before.appends.append(PATH, "t1", { ...added, event_id: "a" }, { expectedSeq: 0, document }),
      before.appends.append(PATH, "t1", { type: "task.done", event_id: "b" }),
    ].map(failed);
    await settled();
    await before.close();
    expect(await Promise.all(lost)).toEqual(["unavailable", "unavailable"]);

    const after = await page(storage);
    expect(after.appends.pending()).toMatchObject([
      { path: PATH, id: "t1", events: [{ event_id: "a", ...added }], document },
      { events: [{ event_id: "b" }] },
    ]);
    expect(after.last().options.body).toMatchObject({ expected_seq: "0" });
    after.last().settle.resolve(answer({ seq: "1" }, 201));
    await settled();
    after.last().settle.resolve(answer({ seq: "2" }, 201));
    await settled();
    expect(bodies(after)).toMatchObject([{ event_id: "a" }, { event_id: "b" }]);
    await after.close();
    expect((await page(storage)).asked).toEqual([]);
  });

  test("are not sent again once they were refused or given up, nor by another person", async () => {
    const storage = open();
    const client = await page(storage);
    const refused = failed(client.appends.append(PATH, "t1", added));
    await settled();
    client.last().settle.reject(new KhalaError("invalid_request", "no"));
    expect(await refused).toBe("invalid_request");
    const giving = new AbortController();
    const given = client.appends
      .append(PATH, "t2", added, { signal: giving.signal })
      .catch(({ name }) => name);
    giving.abort();
    expect(await given).toBe("AbortError");
    const dropped = failed(client.appends.append(PATH, "t3", added));
    client.setScope("bob");
    expect(await dropped).toBe("subject_mismatch");
    const kept = failed(client.appends.append(PATH, "t4", added));
    await client.close();
    expect(await kept).toBe("unavailable");
    expect((await page(storage)).asked).toEqual([]);
    expect((await page(storage, "bob")).asked.map(({ path }) => path)).toEqual([`${PATH}/t4/events`]);
  });

  test("are gone when the storage is cleared, and those made before the person was known are kept", async () => {
    const storage = open();
    const client = world(storage);
    const early = failed(client.appends.append(PATH, "t1", added));
    client.setScope("ada");
    await client.close();
    await early;
    expect((await page(storage)).appends.pending()).toHaveLength(1);
    await storage.clear();
    expect((await page(storage)).appends.pending()).toEqual([]);
  });

  test("of several tabs are all kept", async () => {
    const storage = open();
    const locks = oneAtATime("The lock");
    const [one, two] = [await page(storage), await page(storage)];
    for (const { place } of [one, two])
      Object.assign(place, {
        locks: { request: (_name: string, _options: object, hold: () => Promise<void>) => locks(hold) },
      });
    const lost = [one, two].map(({ appends }, i) =>
      failed(appends.append(PATH, `t${i}`, { ...added, event_id: `e${i}` })),
    );
    await Promise.all([one.close(), two.close()]);
    await Promise.all(lost);
    expect((await page(storage)).appends.pending()).toHaveLength(2);
  });
});

test("says so when an append that was made before a reload is refused", async () => {
  const storage = memory();
  const before = world(storage);
  before.setScope("ada");
  const lost = before.appends.append(PATH, "t1", added).catch(() => {});
  await before.close();
  await lost;
  const { setScope, asked, events } = world(storage);
  setScope("ada");
  await vi.waitFor(() => expect(asked).toHaveLength(1));
  asked[0]!.settle.reject(new KhalaError("invalid_request", "no"));
  await vi.waitFor(() => expect(events).toMatchObject([{ event: "append_refused" }]));
});
