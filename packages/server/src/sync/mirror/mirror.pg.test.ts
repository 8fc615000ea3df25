import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test, vi } from "vitest";
import type { Database } from "../../database/database.ts";
import { runSummaries } from "../models/runtime.ts";
import { recordStart, rotateEpoch } from "../read/starts.ts";
import { trimTopic } from "../rebuild/retention.ts";
import { headOf, journalOf, type SyncParts, syncParts } from "../test_support.ts";
import { type Mirror, type MirrorBatch, type MirrorUpdate, noopMirror } from "./mirror.ts";
import { type FollowerOptions, startMirrorFollower } from "./mirror_follower.ts";

const TOPIC = runSummaries.topic;

/** A mirror in memory that keeps every update, as the port requires. */
class Recorder implements Mirror {
  readonly name: string;
  readonly batches: MirrorBatch[] = [];
  readonly held = new Map<string, MirrorUpdate & { epoch: string }>();
  /** Called before each batch is kept. */
  before: (batch: MirrorBatch, signal: AbortSignal) => Promise<void> = async () => {};

  constructor(name = "recorder") {
    this.name = name;
  }

  async publish(batch: MirrorBatch, signal: AbortSignal): Promise<void> {
    await this.before(batch, signal);
    this.batches.push(batch);
    for (const update of batch.updates) {
      const old = this.held.get(update.docKey);
      const newer = !old || old.epoch < batch.epoch || old.docVersion < update.docVersion;
      if (newer) this.held.set(update.docKey, { ...update, epoch: batch.epoch });
    }
  }

  get told(): string[] {
    return this.batches.flatMap((batch) => batch.updates.map((u) => `${u.docKey} v${u.docVersion} ${u.op}`));
  }
}

interface Setup extends AsyncDisposable {
  readonly database: Database;
  readonly parts: SyncParts;
  write(id: string, version: number, text?: string, audience?: readonly string[]): Promise<unknown>;
  remove(id: string, version: number): Promise<unknown>;
  follow(sink: Mirror, options?: Partial<FollowerOptions>): AsyncDisposable;
}

async function setup({ inline = true } = {}): Promise<Setup> {
  const own = await testDatabase();
  const { database } = own;
  const parts = await syncParts(database, { inline });
  await database.interactive((tx) => recordStart(tx, parts.context));
  const followers = new Set<{ stop(): Promise<void> }>();
  const document = (id: string, version: number) => ({
    docKey: `run:${id}`,
    docVersion: BigInt(version),
    org: "acme",
    audience: null,
  });
  return {
    database,
    parts,
    write: (id, version, text = "", audience) =>
      parts.write(runSummaries, {
        ...document(id, version),
        op: "upsert",
        payload: JSON.stringify({ text, version }),
        ...(audience && { audience }),
      }),
    remove: (id, version) => parts.write(runSummaries, { ...document(id, version), op: "delete" }),
    follow(sink, options = {}) {
      const follower = startMirrorFollower(runSummaries, parts.context, {
        database,
        sink,
        metrics: parts.metrics,
        pollMs: 10,
        timeoutMs: 10_000,
        retryMs: { base: 2, cap: 10 },
        active: () => true,
        ...options,
      });
      followers.add(follower);
      return { [Symbol.asyncDispose]: () => follower.stop() };
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...followers].map((follower) => follower.stop()));
      await parts[Symbol.asyncDispose]();
      await own[Symbol.asyncDispose]();
    },
  };
}

const place = async (database: Database) => {
  const text = "SELECT sink, epoch, watermark FROM runtime.sync_mirror WHERE topic = $1";
  const [row] = await database.query<{ sink: string; epoch: string; watermark: bigint }>({
    text,
    values: [TOPIC],
  });
  return row;
};

/** Resolves when the mirror has received everything that is committed. */
const followed = ({ database }: Setup, name = "recorder") =>
  vi.waitFor(
    async () =>
      expect(await place(database)).toMatchObject({ sink: name, watermark: await headOf(database, TOPIC) }),
    { timeout: 30_000, interval: 10 },
  );

test("lists existing documents first, then follows every update in order, also after a restart", async () => {
  await using here = await setup();
  const sink = new Recorder();
  await here.write("a", 1);
  await here.write("b", 1);
  await here.remove("b", 2);
  {
    await using _ = here.follow(sink);
    await followed(here);
    expect(sink.told).toEqual(["run:a v1 upsert", "run:b v2 delete"]);
    await here.write("a", 2, "hello");
    await followed(here);
  }
  await here.write("c", 1);
  here.follow(sink);
  await followed(here);
  expect(sink.told.slice(2)).toEqual(["run:a v2 upsert", "run:c v1 upsert"]);
  expect(sink.held.get("run:a")).toMatchObject({
    payload: '{"text":"hello","version":2}',
    payloadHash: expect.stringMatching(/^[0-9a-f]{64}$/),
    org: "acme",
    audience: null,
    watermark: 4n,
  });
});

test("publishes a batch again whose success was not stored: at least once", async () => {
  await using here = await setup();
  const sink = new Recorder();
  await here.write("a", 1);
  await using listed = here.follow(sink);
  await followed(here);
  await listed[Symbol.asyncDispose]();
  await here.write("a", 2);
  let killed = false;
  const dying: Database = {
    ...here.database,
    query(statement) {
      if (statement.name !== "mirror_move" || killed) return here.database.query(statement);
      killed = true;
      return Promise.reject(new Error("killed"));
    },
  };
  here.follow(sink, { database: dying });
  await followed(here);
  expect(sink.told).toEqual(["run:a v1 upsert", "run:a v2 upsert", "run:a v2 upsert"]);
});

test("retries a failing mirror in order until it succeeds, without affecting writers", async () => {
  await using here = await setup();
  const sink = new Recorder();
  let tries = 0;
  let works = true;
  sink.before = async () => {
    tries++;
    if (!works) throw new Error("out of order");
  };
  // Past the list of everything, which has the newest version, it follows the journal.
  await here.write("a", 1);
  here.follow(sink);
  await followed(here);
  works = false;
  tries = 0;
  for (let version = 2; version <= 50; version++)
    expect(await here.write("a", version)).toEqual([{ watermark: BigInt(version) }]);
  await patiently(() => expect(tries).toBeGreaterThan(3));
  expect(sink.told).toEqual(["run:a v1 upsert"]);
  works = true;
  await followed(here);
  const versions = sink.batches.flatMap((batch) => batch.updates.map((update) => update.docVersion));
  expect(versions).toEqual(Array.from({ length: 50 }, (_, i) => BigInt(i + 1)));
  expect(sink.held.get("run:a")?.docVersion).toBe(50n);
});

test("a mirror that hangs and ignores its signal blocks neither writers nor the stop", async () => {
  await using here = await setup();
  const sink = new Recorder();
  let calls = 0;
  sink.before = () => {
    calls++;
    return new Promise(() => {});
  };
  await here.write("a", 1);
  await using follower = here.follow(sink, { timeoutMs: 20 });
  await patiently(() => expect(calls).toBeGreaterThan(2));
  await Promise.all(Array.from({ length: 20 }, (_, i) => here.write(`w${i}`, 1)));
  await follower[Symbol.asyncDispose]();
  const quick = new Recorder();
  here.follow(quick);
  await followed(here);
  expect(quick.held.size).toBe(21);
});

test("a stop during a read ends without publishing", async () => {
  await using here = await setup();
  const sink = new Recorder();
  let calls = 0;
  sink.before = () => {
    calls++;
    return new Promise(() => {});
  };
  await here.write("a", 1);
  const stopped = Promise.withResolvers<void>();
  const follower = here.follow(sink, {
    active() {
      // It reads from now on.
      queueMicrotask(() => void follower[Symbol.asyncDispose]().then(stopped.resolve, stopped.reject));
      return true;
    },
  });
  await stopped.promise;
  expect(calls).toBe(0);
});

test("publishes to a slow mirror at its own pace, in bounded batches", async () => {
  await using here = await setup();
  const sink = new Recorder();
  const gates: (() => void)[] = [];
  sink.before = () => new Promise((resolve) => gates.push(resolve));
  here.follow(sink);
  await Promise.all(Array.from({ length: 300 }, (_, i) => here.write(`w${i}`, 1, "x".repeat(10_000))));
  expect(await journalOf(here.database, TOPIC)).toHaveLength(300);
  const open = setInterval(() => {
    for (const gate of gates.splice(0)) gate();
  }, 1);
  await followed(here).finally(() => clearInterval(open));
  expect(sink.held.size).toBe(300);
  for (const { updates } of sink.batches) {
    const bytes = updates.reduce((sum, update) => sum + update.payload!.length, 0);
    expect(bytes).toBeLessThanOrEqual(1 << 20);
  }
});

test("splits a batch that is too large for the mirror", async () => {
  await using here = await setup();
  const sink = new Recorder();
  sink.before = async ({ updates }) => {
    if (updates.length > 3) throw new Error("too much");
  };
  await Promise.all(Array.from({ length: 20 }, (_, i) => here.write(`w${i}`, 1)));
  here.follow(sink);
  await followed(here);
  expect(sink.held.size).toBe(20);
});

test.each([
  ["another epoch", (here: Setup) => rotateEpoch(here.database, here.parts.context)],
  [
    "a purge that passed it by",
    async (here: Setup) => expect(await trimTopic(here.database, runSummaries, -1_000)).toBeGreaterThan(0),
  ],
  [
    "another sink's place",
    (here: Setup) => here.database.query({ text: "UPDATE runtime.sync_mirror SET sink = 'other'" }),
  ],
])("after %s it publishes everything again", async (_, happen) => {
  await using here = await setup();
  const sink = new Recorder();
  await here.write("a", 1);
  await here.write("b", 1);
  await using first = here.follow(sink);
  await followed(here);
  await first[Symbol.asyncDispose]();
  await here.write("b", 2);
  sink.batches.length = 0;
  await happen(here);
  here.follow(sink);
  await followed(here);
  expect(sink.told).toEqual(["run:a v1 upsert", "run:b v2 upsert"]);
});

test("another server's start does not change the position", async () => {
  await using here = await setup();
  const sink = new Recorder();
  await here.write("a", 1);
  await using first = here.follow(sink);
  await followed(here);
  await first[Symbol.asyncDispose]();
  await here.database.interactive((tx) => recordStart(tx, here.parts.context));
  await here.write("b", 1);
  here.follow(sink);
  await followed(here);
  expect(sink.told).toEqual(["run:a v1 upsert", "run:b v1 upsert"]);
});

test("after a restore, documents with lower versions replace those of the old epoch", async () => {
  await using here = await setup();
  const sink = new Recorder();
  await here.write("a", 7, "lost");
  here.follow(sink);
  await followed(here);
  await here.database.transaction([
    { text: "DELETE FROM runtime.sync_stream_events" },
    { text: "DELETE FROM runtime.sync_run_summaries" },
    { text: "UPDATE runtime.sync_topic_sequences SET next_watermark = 0, floor = 0" },
  ]);
  await rotateEpoch(here.database, here.parts.context);
  await here.write("a", 1, "restored");
  // The watermark is the same as before the restore: reaching it proves nothing.
  await expect
    .poll(() => sink.held.get("run:a"), { timeout: 60_000 })
    .toMatchObject({
      docVersion: 1n,
      payload: '{"text":"restored","version":1}',
    });
});

test("does not publish tombstones for viewers that lose access", async () => {
  await using here = await setup();
  const sink = new Recorder();
  here.follow(sink);
  await followed(here);
  await here.write("a", 1);
  await here.write("a", 2, "", ["ada"]);
  await here.write("a", 3, "", ["bob"]);
  await here.remove("a", 4);
  await here.write("a", 5);
  await followed(here);
  expect(await journalOf(here.database, TOPIC)).toHaveLength(7);
  expect(sink.told).toEqual(
    [1, 2, 3, 5].flatMap((v) => [...(v === 5 ? ["run:a v4 delete"] : []), `run:a v${v} upsert`]),
  );
  expect(sink.batches.flatMap(({ updates }) => updates.map(({ audience }) => audience))).toEqual([
    null,
    ["ada"],
    ["bob"],
    ["bob"],
    null,
  ]);
});

test("publishes the read model's current payload in pointer mode", async () => {
  await using here = await setup({ inline: false });
  const sink = new Recorder();
  here.follow(sink);
  await followed(here);
  sink.batches.length = 0;
  await Promise.all([here.write("a", 1, "old"), here.write("a", 2, "new"), here.write("b", 1, "b")]);
  await followed(here);
  expect(sink.held.get("run:a")).toMatchObject({ docVersion: 2n, payload: '{"text":"new","version":2}' });
  expect(sink.held.get("run:b")?.payload).toBe('{"text":"b","version":1}');
  expect(sink.batches.every(({ updates }) => updates.every(({ payload }) => payload !== null))).toBe(true);
});

test("only the active process publishes", async () => {
  await using here = await setup();
  const sink = new Recorder();
  let active = false;
  let looked = 0;
  await here.write("a", 1);
  here.follow(sink, {
    active() {
      looked++;
      return active;
    },
  });
  await patiently(() => expect(looked).toBeGreaterThan(2));
  expect(sink.batches).toEqual([]);
  active = true;
  await followed(here);
});

test("ignores a batch that finishes after its process lost the lease", async () => {
  await using at = await setup();
  const sink = new Recorder();
  await at.write("a", 1);
  const late = Promise.withResolvers<void>();
  const sent = Promise.withResolvers<void>();
  sink.before = async () => {
    sink.before = async () => {};
    sent.resolve();
    await late.promise;
  };
  let active = true;
  await using _first = at.follow(sink, { active: () => active });
  await sent.promise;
  active = false;
  await using _second = at.follow(sink);
  await at.write("a", 2);
  await followed(at);
  const before = await place(at.database);
  const batches = sink.batches.length;
  late.resolve();
  await vi.waitFor(() => expect(sink.batches.length).toBe(batches + 1), 30_000);
  await at.write("a", 3);
  await followed(at);
  expect(sink.held.get("run:a")).toMatchObject({ docVersion: 3n });
  expect((await place(at.database))!.watermark).toBe(before!.watermark + 1n);
});

test("the noop mirror accepts everything", async () => {
  await using here = await setup();
  await here.write("a", 1);
  here.follow(noopMirror);
  await followed(here, "noop");
});
