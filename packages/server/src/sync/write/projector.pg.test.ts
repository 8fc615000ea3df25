import { seeded, testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test, vi } from "vitest";
import { type Database, openDatabase } from "../../database/database.ts";
import { openAuthority } from "../../events/authority.ts";
import { runs } from "../../events/streams.ts";
import { defineModel, type Model } from "../model.ts";
import { notifications } from "../models/notifications.ts";
import { runSummaries, workerSummaries } from "../models/runtime.ts";
import { appendRun, foldOf, journalOf, liveDocuments, projected, syncParts } from "../test_support.ts";
import { listFailedStreams } from "./failed_streams.ts";
import { startProjector } from "./projector.ts";

let ids = 0;
const step = (name = "s") => ({ event_id: `e${++ids}`, type: "run.step", data: { name } });
const event = (type: string, data: Record<string, unknown> = {}) => ({
  event_id: `e${++ids}`,
  type,
  data: data as never,
});

async function document(database: Database, model: Model, key: string) {
  const found = (await liveDocuments(database, model)).get(key);
  return found && (JSON.parse(found.payload) as Record<string, unknown>);
}

const checkpoint = async (database: Database, topic: string) => {
  const text = "SELECT position FROM runtime.sync_checkpoints WHERE topic = $1";
  const [row] = await database.query<{ position: bigint }>({ text, values: [topic] });
  return row!.position;
};

test("events become documents, each change with a version and a journal row", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database, { models: [notifications] });
  for (const model of [runSummaries, workerSummaries, notifications]) parts.project(model);
  await appendRun(parts.authority, "r1", [event("run.started", { title: "t" }), step("a")]);
  await appendRun(parts.authority, "r1", [event("run.completed", { result: { ok: true } })]);
  for (const model of [runSummaries, notifications]) await projected(own.database, model);
  expect(await document(own.database, runSummaries, "run:r1")).toMatchObject({
    title: "t",
    steps: 1,
    last_step: "a",
    status: "completed",
    result: { ok: true },
  });
  const rows = await journalOf(own.database, runSummaries.topic);
  expect(rows.map((row) => [row.watermark, row.version])).toEqual([
    [1n, 1n],
    [2n, 2n],
    [3n, 3n],
  ]);
  expect(await journalOf(own.database, notifications.topic)).toMatchObject([
    { key: "notification:run:r1:3", audience: ["ada"] },
  ]);
  expect(await journalOf(own.database, workerSummaries.topic)).toEqual([]);
});

/** Fails some transactions before they are made, and some after they took effect. */
function failingSometimes(database: Database, random: () => number): Database {
  return {
    ...database,
    async transaction(statements) {
      const chance = random();
      if (chance < 0.25) throw new Error("killed before");
      const answer = await database.transaction(statements);
      if (chance > 0.75) throw new Error("killed after");
      return answer;
    },
  };
}

test.each([1, 2, 3])(
  "killed before or after any commit, applies every event exactly once (seed %i)",
  async (seed) => {
    await using own = await testDatabase();
    await using parts = await syncParts(own.database);
    const killing = failingSometimes(own.database, seeded(seed));
    await using doomed = await syncParts(killing);
    doomed.project(runSummaries);
    for (let i = 0; i < 60; i++) await appendRun(parts.authority, `r${i % 5}`, [step(), step()]);
    await projected(own.database, runSummaries);
    for (let run = 0; run < 5; run++)
      expect(await document(own.database, runSummaries, `run:r${run}`)).toMatchObject({ steps: 24 });
    const versions = (await journalOf(own.database, runSummaries.topic)).map(
      (row) => `${row.key} ${row.version}`,
    );
    expect(versions).toHaveLength(120);
    expect(new Set(versions).size).toBe(120);
  },
);

test("two projectors that are both active apply nothing twice", async () => {
  await using own = await testDatabase({ poolSize: 8 });
  const other = openDatabase({
    url: own.url,
    poolSize: 3,
    connectTimeoutMs: 60_000,
    log: (await testContext()).log,
  });
  try {
    await using one = await syncParts(own.database);
    await using two = await syncParts(other);
    one.project(runSummaries);
    two.project(runSummaries);
    for (let i = 0; i < 50; i++) await appendRun((i % 2 ? one : two).authority, `r${i % 3}`, [step()]);
    await projected(own.database, runSummaries);
    expect(await journalOf(own.database, runSummaries.topic)).toHaveLength(50);
  } finally {
    await other.close();
  }
});

test("a projector that takes over continues from the other's position", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  let turn = 1;
  const first = parts.project(runSummaries, { active: () => turn === 1 });
  const second = parts.project(runSummaries, { active: () => turn === 2 });
  for (let i = 0; i < 6; i++) {
    turn = (i % 2) + 1;
    await appendRun(parts.authority, "r", [step()]);
    await projected(own.database, runSummaries);
  }
  expect(await document(own.database, runSummaries, "run:r")).toMatchObject({ steps: 6 });
  await patiently(() => expect(first.state().position).toBeUndefined());
  await patiently(() => expect(second.state().position).toBe(6n));
});

test("never skips an append that commits late: later ones wait for it", async () => {
  await using own = await testDatabase({ poolSize: 6 });
  const { database } = own;
  await using parts = await syncParts(database);
  parts.project(runSummaries);
  const opened = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const late = database.interactive(async (tx) => {
    const authority = openAuthority({ ...database, query: tx.query }, parts.context);
    await appendRun(authority, "late", [step()]);
    opened.resolve();
    await gate.promise;
  });
  await opened.promise;
  const behind = appendRun(parts.authority, "behind", [step()]);
  await patiently(async () => {
    const waiting =
      "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    expect(await database.query({ text: waiting })).toHaveLength(1);
  });
  expect(await liveDocuments(database, runSummaries)).toEqual(new Map());
  gate.resolve();
  await Promise.all([late, behind]);
  await projected(database, runSummaries);
  const rows = await journalOf(database, runSummaries.topic);
  expect(rows.map((row) => row.key)).toEqual(["run:late", "run:behind"]);
});

function failedStreams(database: Database, { topic }: Model) {
  const after = { position: 0n, topic: "" };
  return listFailedStreams(database, [topic], { org: undefined, after, limit: 100 });
}

/** A model that cannot take a step named "bad" while `broken` is set. */
function fragile(how: "id" | "project" | "access" | "document" | "key" | "storage") {
  const state = { broken: true };
  const bad = (data: unknown) => state.broken && (data as { name?: string }).name === "bad";
  const base: Model = defineModel<{ steps: number; last?: unknown }>({
    topic: "app.fragile",
    prefix: "fragile",
    streams: [runs],
    id(from) {
      if (bad(from.data) && how === "id") throw new Error("no id");
      return bad(from.data) && how === "key" ? `${from.streamId}\0` : from.streamId;
    },
    audience(_, from) {
      if (bad(from.data) && how === "access") throw new Error("no access");
      return null;
    },
    project(before, from) {
      if (bad(from.data) && how === "project") throw new Error("no project");
      const last = bad(from.data) && how === "document" ? 1n : undefined;
      return { steps: (before?.steps ?? 0) + 1, ...(last && { last }) };
    },
  });
  const model: Model = {
    ...base,
    audience: (document, from) =>
      bad(from.data) && how === "storage" ? ["nul\0"] : base.audience(document, from),
  };
  return { model, state };
}

test.each(["id", "project", "access", "document", "key", "storage"] as const)(
  "a broken %s sets its stream aside; other streams continue, and it continues when fixed",
  async (how) => {
    const { model, state } = fragile(how);
    await using own = await testDatabase();
    await using parts = await syncParts(own.database, { models: [model] });
    const projector = parts.project(model);
    parts.project(runSummaries);
    await appendRun(parts.authority, "r", [step(), step(), step("bad"), step()]);
    await appendRun(parts.authority, "r", [step(), step()], "globex");
    await vi.waitFor(() => expect(projector.state().failed).toBe(1), { timeout: 30_000 });
    const [stream, ...others] = await failedStreams(own.database, model);
    expect(others).toEqual([]);
    expect(stream).toMatchObject({ org: "acme", kind: "run", streamId: "r", seq: 3n, position: 3n });
    expect(stream?.error).toMatch(
      /^The projection of app\.fragile failed at event 3 \(run\.step, run r, sequence 3\): /,
    );
    // Events before it are not held back, and neither is the stream of that name in another org.
    await patiently(async () => {
      expect(await document(own.database, model, "fragile:r")).toEqual({ steps: 2 });
      expect(await document(own.database, model, "globex fragile:r")).toEqual({ steps: 2 });
    });
    expect(await appendRun(parts.authority, "r", [step()])).toBe(5n);
    await projected(own.database, runSummaries);
    await patiently(() => expect(projector.state().position).toBe(7n));
    expect(await document(own.database, model, "fragile:r")).toEqual({ steps: 2 });

    state.broken = false;
    await projected(own.database, model);
    expect(await document(own.database, model, "fragile:r")).toEqual({ steps: 5 });
    await patiently(() => expect(projector.state()).toMatchObject({ position: 7n, failed: 0 }));
    const versions = (await journalOf(own.database, model.topic)).filter(({ org }) => org === "acme");
    expect(versions.map((row) => row.version)).toEqual([1n, 2n, 3n, 4n, 5n]);
    expect(await failedStreams(own.database, model)).toEqual([]);
  },
);

test("an audience that no token can name sees nothing, and blocks nothing", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  const projector = parts.project(runSummaries);
  const long = "é".repeat(5_000);
  await appendRun(parts.authority, "r", [event("run.started", { audience: [long, ""] })]);
  await appendRun(parts.authority, "s", [event("run.started", { audience: [long, "bob", "ada", "bob"] })]);
  await projected(own.database, runSummaries);
  expect(projector.state().failed).toBe(0);
  const documents = await liveDocuments(own.database, runSummaries);
  expect(documents.get("run:r")?.audience).toEqual([]);
  expect(documents.get("run:s")?.audience).toEqual(["ada", "bob"]);
});

test("sharing, deleting and recreating a run sends tombstones to viewers that lose it, and keeps counting versions", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  parts.project(runSummaries);
  await appendRun(parts.authority, "r", [
    event("run.started", { title: "t" }),
    event("run.shared", { audience: ["ada"] }),
    event("run.shared", { audience: ["bob"] }),
    event("run.deleted"),
    event("run.deleted"),
    step("again"),
  ]);
  await projected(own.database, runSummaries);
  const rows = await journalOf(own.database, runSummaries.topic);
  expect(rows.map(({ version, op, audience, hiddenFrom }) => [version, op, audience, hiddenFrom])).toEqual([
    [1n, "upsert", null, null],
    [2n, "delete", null, ["ada"]],
    [2n, "upsert", ["ada"], null],
    [3n, "delete", ["ada"], null],
    [3n, "upsert", ["bob"], null],
    [4n, "delete", ["bob"], null],
    [5n, "upsert", null, null],
  ]);
  expect(await document(own.database, runSummaries, "run:r")).toMatchObject({ steps: 1, last_step: "again" });
});

test("events of other models cost no commit, and are not lost", async () => {
  await using own = await testDatabase();
  let commits = 0;
  const counting: Database = {
    ...own.database,
    transaction(statements) {
      commits++;
      return own.database.transaction(statements);
    },
  };
  await using parts = await syncParts(counting);
  const projector = parts.project(workerSummaries);
  for (let i = 0; i < 20; i++) await appendRun(parts.authority, "r", [step()]);
  await patiently(() => expect(projector.state().position).toBe(20n));
  expect(commits).toBe(0);
  expect(await checkpoint(own.database, workerSummaries.topic)).toBe(0n);
});

test("a projector that starts on a long log catches up in batches", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  for (let i = 0; i < 5; i++)
    await appendRun(
      parts.authority,
      `r${i}`,
      Array.from({ length: 700 }, () => step()),
    );
  const projector = startProjector(runSummaries, parts.context, {
    database: own.database,
    authority: parts.authority,
    sink: parts.sink,
    retryMs: 60_000,
    active: () => true,
  });
  await projected(own.database, runSummaries);
  await projector.stop();
  expect((await foldOf(own.database, runSummaries)).size).toBe(5);
  expect(await checkpoint(own.database, runSummaries.topic)).toBe(3_500n);
});

test("pauses after a batch of events, so that more gather; a stop does not wait for that", async () => {
  await using own = await testDatabase();
  await using parts = await syncParts(own.database);
  const append = (runId: string) => appendRun(parts.authority, runId, [step()]);
  const clock = new ManualClock();
  await Promise.all(["a", "b"].map(append));
  const projector = startProjector(
    runSummaries,
    { ...parts.context, clock },
    {
      database: own.database,
      authority: parts.authority,
      sink: parts.sink,
      retryMs: 60_000,
      active: () => true,
    },
  );
  await patiently(() => expect(projector.state().position).toBe(2n));
  await Promise.all(["c", "d"].map(append));
  projector.wake();
  await append("e");
  projector.wake();
  expect(projector.state().position).toBe(2n);
  await clock.advance(5);
  await patiently(() => expect(projector.state().position).toBe(5n));
  await projector.stop();
});
