import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import type { Database } from "../../database/database.ts";
import { runs } from "../../events/streams.ts";
import { defineModel, type Model } from "../model.ts";
import {
  appendRun,
  foldOf,
  headOf,
  journalOf,
  liveDocuments,
  projected,
  type SyncParts,
  syncParts,
} from "../test_support.ts";
import { listFailedStreams } from "../write/failed_streams.ts";
import { type ReprojectionProgress, reproject } from "./reprojection.ts";
import { trimTopic } from "./retention.ts";

interface Thing {
  readonly name: string;
  readonly seen: number;
  readonly note?: string;
}

/** A model in one state of its code: one document per name of a step, counted from `first`. */
function things(change: (thing: Thing) => Thing | null, first: (name: string) => number = () => 0): Model {
  return defineModel<Thing>({
    topic: "app.things",
    prefix: "thing",
    streams: [runs],
    id: (event) => (event.type === "run.step" ? (event.data as { name: string }).name : null),
    audience: (thing) => (thing.note === "private" ? ["ada"] : null),
    project(before, event) {
      const { name, status } = event.data as { name: string; status?: string };
      if (status === "unseen") return before;
      return change({ name, seen: (before?.seen ?? first(name)) + 1 });
    },
  });
}

const old = things((thing) => (thing.name === "late" ? null : thing));
const today = things(
  (thing) => {
    if (thing.name === "secret") return { ...thing, note: "private" };
    return thing.name === "gone" ? null : thing;
  },
  (name) => (name.endsWith("7") ? 100 : 0),
);

let ids = 0;
const steps = (names: readonly string[], status?: string) =>
  names.map((name) => ({
    event_id: `e${++ids}`,
    type: "run.step",
    data: { name, ...(status !== undefined && { status }) },
  }));
const names = (count: number) => Array.from({ length: count }, (_, i) => `t${String(i).padStart(4, "0")}`);

async function fill(parts: SyncParts, all: readonly string[]): Promise<void> {
  for (let at = 0; at < all.length; at += 1_000)
    await appendRun(parts.authority, "fill", steps(all.slice(at, at + 1_000)));
}

/** The same, with a stream of its own for each name. */
async function fillStreams(parts: SyncParts, all: readonly string[]): Promise<void> {
  for (const name of all) await appendRun(parts.authority, name, steps([name]));
}

const failed = (database: Database) =>
  listFailedStreams(database, ["app.things"], {
    org: undefined,
    after: { position: 0n, topic: "" },
    limit: 100,
  });

/** Fills the log and projects it with the code of yesterday. */
async function yesterday(database: Database, all: readonly string[]): Promise<void> {
  await using parts = await syncParts(database, { models: [old] });
  await fill(parts, all);
  parts.project(old);
  await projected(database, old);
}

const expectEqualToFold = async (database: Database, model: Model) =>
  expect(await liveDocuments(database, model)).toEqual(await foldOf(database, model));

test("re-emits only different documents: changed, deleted, new and narrowed ones", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, ["same", "x7", "gone", "late", "secret", "same"]);
  const head = await headOf(database, old.topic);
  await using parts = await syncParts(database);
  const done = await reproject(database, parts.context, today, { inline: true });

  expect(done).toEqual({
    topic: "app.things",
    phase: "comparing",
    position: 6n,
    head: 6n,
    documents: 5n,
    differing: 4n,
  });
  // Re-emitted documents are one version newer.
  expect(await journalOf(database, today.topic, head)).toMatchObject([
    { key: "thing:gone", version: 2n, op: "delete", payload: null },
    { key: "thing:late", version: 1n, op: "upsert", payload: '{"name":"late","seen":1}' },
    // Viewers that lose it get their update first, then those that keep it.
    { key: "thing:secret", version: 2n, op: "delete", audience: null, hiddenFrom: ["ada"] },
    { key: "thing:secret", version: 2n, op: "upsert", audience: ["ada"] },
    { key: "thing:x7", version: 2n, op: "upsert", payload: '{"name":"x7","seen":101}' },
  ]);
  await expectEqualToFold(database, today);
  const left =
    "SELECT (SELECT count(*) FROM runtime.sync_rebuilt_documents) + count(*) AS n FROM runtime.sync_reprojections";
  expect(await database.query({ text: left })).toEqual([{ n: 0n }]);
});

test("re-emits nothing for a correct model, and does not disturb its projector", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, ["a", "b", "a"]);
  const checkpoint = () =>
    database.query({ text: "SELECT * FROM runtime.sync_checkpoints WHERE topic = 'app.things'" });
  const [before, head] = [await checkpoint(), await headOf(database, old.topic)];
  await using parts = await syncParts(database);
  const done = await reproject(database, parts.context, old, { inline: true });
  expect(done).toMatchObject({ documents: 2n, differing: 0n });
  expect(await headOf(database, old.topic)).toBe(head);
  expect(await checkpoint()).toEqual(before);
});

test("a running projector continues from re-emitted documents, not from its cache", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, ["x7", "y"]);
  await using parts = await syncParts(database);
  // The projector of today remembers x7 in its version of yesterday plus one step.
  parts.project(today);
  await appendRun(parts.authority, "fill", steps(["y"]));
  await appendRun(parts.authority, "fill", steps(["x7"], "unseen"));
  await patiently(async () => expect(await journalOf(database, today.topic)).toHaveLength(3));
  expect(await reproject(database, parts.context, today, { inline: true })).toMatchObject({ differing: 1n });
  await appendRun(parts.authority, "fill", steps(["x7", "y", "x7"]));
  await projected(database, today);
  const x7 = (await journalOf(database, today.topic)).filter((row) => row.key === "thing:x7");
  expect(x7.map((row) => [row.version, JSON.parse(row.payload!).seen])).toEqual([
    [1n, 1],
    [2n, 101],
    [3n, 102],
    [4n, 103],
  ]);
});

test("applies an event again that had no effect on the document before the rebuild", async () => {
  const doorkeeper = (open: boolean) =>
    defineModel<{ open: boolean; guests: number }>({
      topic: "app.things",
      prefix: "thing",
      streams: [runs],
      project(before, event) {
        if (event.type === "run.started") return { open, guests: 0 };
        return before?.open ? { ...before, guests: before.guests + 1 } : before;
      },
    });
  await using own = await testDatabase();
  const { database } = own;
  {
    await using parts = await syncParts(database, { models: [doorkeeper(false)] });
    parts.project(doorkeeper(false));
    await appendRun(parts.authority, "r", [{ event_id: "s", type: "run.started", data: {} }]);
    await projected(database, doorkeeper(false));
  }
  await using parts = await syncParts(database);
  const projector = parts.project(doorkeeper(true));
  await appendRun(parts.authority, "r", steps(["guest"]));
  // It has passed the step without a word: nothing of it is stored.
  await patiently(() => expect(projector.state().position).toBe(2n));
  expect(await reproject(database, parts.context, doorkeeper(true), { inline: true })).toMatchObject({
    differing: 1n,
  });
  await projected(database, doorkeeper(true));
  expect((await liveDocuments(database, doorkeeper(true))).get("thing:r")?.payload).toBe(
    '{"guests":1,"open":true}',
  );
});

test("writers and the projector continue, and the result is that of the whole log", async () => {
  await using own = await testDatabase({ poolSize: 8 });
  const { database } = own;
  await yesterday(database, [...names(2_500), "gone", "late", "secret"]);
  const head = await headOf(database, old.topic);
  await using parts = await syncParts(database);
  parts.project(today);
  const stop = new AbortController();
  const writer = async (id: string) => {
    for (let i = 0; !stop.signal.aborted; i++) {
      const some = [`t${String((i * 37) % 1_250).padStart(4, "0")}`, `new${id}${i}`, "secret", "t0007"];
      await appendRun(parts.authority, id, steps(some));
    }
  };
  const writers = [writer("a"), writer("b")];
  const progress: ReprojectionProgress[] = [];
  const done = await reproject(database, parts.context, today, {
    inline: true,
    onProgress: (now) => progress.push(now),
  });
  stop.abort();
  await Promise.all(writers);
  await projected(database, today);

  expect(done.differing).toBeGreaterThan(0n);
  expect(progress.map((now) => now.position)).toEqual(
    progress.map((now) => now.position).toSorted((a, b) => Number(a - b)),
  );
  expect(progress.every((now) => now.position <= now.head)).toBe(true);
  // Re-emitted rows look like projected ones; but an unchanged document has no new row.
  const touched = new Set((await journalOf(database, today.topic, head)).map((row) => row.key));
  const quiet = [...(await foldOf(database, today))].filter(
    ([, { payload }]) => JSON.parse(payload).seen === 1 && /"t\d{3}[^7]"/.test(payload),
  );
  expect(quiet.length).toBeGreaterThan(0);
  for (const [key] of quiet) expect(touched).not.toContain(key);
});

/** Fails the nth access to the database, before it is made or after it took effect. */
function failingAt(database: Database, nth: number, when: "before" | "after"): Database {
  let count = 0;
  const access = async <T>(work: () => Promise<T>): Promise<T> => {
    const now = ++count === nth;
    if (now && when === "before") throw new Error("killed");
    const value = await work();
    if (now) throw new Error("killed");
    return value;
  };
  return {
    ...database,
    query: (statement) => access(() => database.query(statement)),
    interactive: (fn) => access(() => database.interactive(fn)),
  };
}

test.each(["before", "after"] as const)(
  "killed %s any step, it continues and emits each difference once",
  { timeout: 120_000 },
  async (when) => {
    await using own = await testDatabase();
    const { database } = own;
    await yesterday(database, [...names(1_050), "late", "gone"]);
    await using parts = await syncParts(database);
    for (let nth = 1, model = today; ; nth++, model = model === today ? old : today) {
      const head = await headOf(database, model.topic);
      let killed = false;
      const first = reproject(failingAt(database, nth, when), parts.context, model, { inline: true });
      await first.catch((error: Error) => {
        expect(error.message).toBe("killed");
        killed = true;
      });
      if (killed) await reproject(database, parts.context, model, { inline: true });
      await expectEqualToFold(database, model);
      const emitted = (await journalOf(database, model.topic, head)).map((row) => row.key);
      expect(new Set(emitted).size).toBe(emitted.length);
      expect(emitted).toHaveLength(107);
      if (!killed) {
        expect(nth).toBeGreaterThan(12);
        return;
      }
    }
  },
);

/** Holds the reprojection at its nth transaction. */
function heldAt(database: Database, nth: number) {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  let count = 0;
  const held: Database = {
    ...database,
    async interactive(fn) {
      if (++count === nth) {
        reached.resolve();
        await gate.promise;
      }
      return database.interactive(fn);
    },
  };
  return { held, reached: reached.promise, release: () => gate.resolve() };
}

test("a document whose tombstone was purged returns above its old versions, by event or reprojection", async () => {
  await using own = await testDatabase();
  const { database } = own;
  // Two streams share each document, and a stream that is new starts at sequence 1.
  const deletes = things((thing) => (thing.seen === 6 ? null : thing));
  const keeps = things((thing) => thing);
  const six = (name: string) => Array.from({ length: 6 }, () => name);
  await using parts = await syncParts(database, { models: [deletes] });
  await fill(parts, [...six("a"), ...six("b")]);
  const projector = parts.project(deletes);
  await expect.poll(() => headOf(database, deletes.topic), { timeout: 30_000 }).toBe(12n);
  expect(await trimTopic(database, deletes, -86_400_000)).toBe(12);
  const rows = await database.query({ text: "SELECT doc_key FROM runtime.sync_things" });
  expect(rows).toEqual([]);
  const versions = async () =>
    (await journalOf(database, deletes.topic)).map(({ key, version }) => [key, version]);
  await projector.stop();

  parts.project(deletes);
  await appendRun(parts.authority, "another", steps(["a"]));
  await projected(database, deletes);
  expect(await versions()).toEqual([["thing:a", 7n]]);

  await reproject(database, parts.context, keeps, { inline: true });
  expect(await versions()).toEqual([
    ["thing:a", 7n],
    ["thing:a", 8n],
    ["thing:b", 7n],
  ]);
});

test("refuses a second concurrent reprojection at once", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, ["x7"]);
  await using parts = await syncParts(database);
  const { held, reached, release } = heldAt(database, 1);
  const first = reproject(held, parts.context, today, { inline: true });
  await reached;
  await expect(reproject(database, parts.context, today, { inline: true })).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("already running"),
  });
  release();
  expect(await first).toMatchObject({ differing: 1n });
});

test("stops a reprojection that lost its lock and was replaced", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, ["x7", "y"]);
  await using parts = await syncParts(database);
  const { held, reached, release } = heldAt(database, 2);
  const first = reproject(held, parts.context, today, { inline: true });
  await reached;
  await database.query({
    text: `SELECT pg_terminate_backend(pid) FROM pg_locks
      WHERE locktype = 'advisory' AND classid = 7240116 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
  });
  await patiently(() => reproject(database, parts.context, today, { inline: true }));
  const head = await headOf(database, today.topic);
  release();
  await expect(first).rejects.toThrow("took over");
  expect(await headOf(database, today.topic)).toBe(head);
  await expectEqualToFold(database, today);
});

test("stops on its signal, and starts again after a change of code", async () => {
  await using own = await testDatabase();
  const { database } = own;
  await yesterday(database, names(3_500));
  await using parts = await syncParts(database);
  const seen: bigint[] = [];
  const stopping = (model: Model) => {
    const stop = new AbortController();
    return reproject(database, parts.context, model, {
      inline: true,
      signal: stop.signal,
      onProgress({ position }) {
        seen.push(position);
        stop.abort();
      },
    });
  };
  const head = await headOf(database, today.topic);
  await expect(stopping(today)).rejects.toThrow(/abort/i);
  await expect(stopping(today)).rejects.toThrow(/abort/i);
  await expect(stopping(old)).rejects.toThrow(/abort/i);
  await expect(stopping(old)).rejects.toThrow(/abort/i);
  expect(seen).toEqual([1_000n, 2_000n, 1_000n, 2_000n]);
  expect(await headOf(database, today.topic)).toBe(head);
  const done = await reproject(database, parts.context, old, { inline: true, restart: true });
  expect(done).toMatchObject({ documents: 3_500n, differing: 0n });
});

test("sets aside a stream that the code fails on, and continues with the others", async () => {
  const broken = things((thing) => {
    if (thing.name === "t0001") throw new Error("no such thing");
    return thing;
  });
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database, { models: [old] });
  await fillStreams(parts, names(3));
  const before = parts.project(old);
  await projected(database, old);
  await before.stop();
  await reproject(database, parts.context, broken, { inline: true });
  await projected(database, broken);
  expect(await failed(database)).toMatchObject([{ streamId: "t0001", seq: 1n, position: 2n }]);
  // Its later events wait in the live projection too, until code takes them.
  const projector = parts.project(broken);
  await fillStreams(parts, names(5));
  await patiently(() => expect(projector.state()).toMatchObject({ position: 8n, failed: 1 }));
  await projected(database, broken);
  await projector.stop();
  parts.project(today);
  await projected(database, today);
  expect(await failed(database)).toEqual([]);
});

test("reprojects a stream that the live projection has set aside, which then continues", async () => {
  const broken = things((thing) => {
    if (thing.name === "t0001") throw new Error("no such thing");
    return thing;
  });
  await using own = await testDatabase();
  const { database } = own;
  await using parts = await syncParts(database, { models: [broken] });
  // It never tries again by itself, as if it had tried just now.
  let now = broken;
  const live: Model = { ...today, project: (before, event) => now.project(before, event) };
  const projector = parts.project(live, { retryMs: 3_600_000 });
  await fillStreams(parts, names(5));
  await patiently(() => expect(projector.state()).toMatchObject({ position: 5n, failed: 1 }));
  now = today as typeof now;
  let more = 0;
  await reproject(database, parts.context, today, {
    inline: true,
    onProgress() {
      // Events of the paused stream after its document was compared are not lost either.
      if (more++ < 3) void fillStreams(parts, names(5));
    },
  });
  await fillStreams(parts, names(5));
  await projected(database, today);
  await patiently(() => expect(projector.state().failed).toBe(0));
  expect(await failed(database)).toEqual([]);
});

test("refuses an unknown topic, and says what to do", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  await expect(reproject(own.database, parts.context, today, { inline: true })).rejects.toMatchObject({
    code: "not_found",
    message: expect.stringContaining("Start a server with the model once"),
  });
});
