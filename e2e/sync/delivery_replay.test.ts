import { RawClient, until } from "@khala/test-support/clients/clients";
import { applyUpdates, listAll, watermarkOf } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const ALL = { [RUNS]: { watermark: "0" } };

// The same on the wire, wherever the rows come from.
const sources = [
  { from: "memory", settings: {} },
  { from: "the database", settings: { KHALA_TAIL_BYTES: "0" } },
  {
    from: "the database in pointer mode",
    settings: { KHALA_TAIL_BYTES: "0", KHALA_PAYLOAD_MODE: "pointer" },
  },
];

describe.each(sources)("a replay from $from", ({ settings }) => {
  let database: TestDatabase;
  let server: TestServer;
  beforeAll(async () => {
    database = await testDatabase();
    server = await startServer(database.url, { settings });
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });

  let orgs = 0;
  async function viewer(params: object = {}, sub = "user-1") {
    const org = `org-${++orgs}`;
    const token = await server.token({ org_id: org, sub });
    const connect = async () => {
      const raw = await RawClient.connect(server.socketUrl, { token });
      await raw.join(params);
      return raw;
    };
    return { org, token, connect };
  }

  /** Writes documents 0 to count - 1 at once. */
  async function fill(org: string, count: number, payload: (i: number) => object = (i) => ({ i })) {
    const document = (_: unknown, i: number) => ({
      key: `run:${org}-${i}`,
      version: 1,
      org,
      payload: payload(i),
    });
    await server.writeAll(Array.from({ length: count }, document));
    await server.caughtUp(RUNS);
  }

  const complete = (raw: RawClient) =>
    raw.frame("the end of the replay", (frame) => frame.update_batch?.replay_complete);

  test("follows the reply, in order, in batches of at most 200, and reports its end once", async () => {
    const { org, token, connect } = await viewer();
    await fill(org, 450);
    await using raw = await connect();
    const current = await raw.subscribe(RUNS, ALL);
    await complete(raw);
    const reply = raw.received.findIndex(({ event, ref }) => event === "phx_reply" && ref === "2");
    expect(raw.received.findIndex(({ event }) => event === "frame")).toBeGreaterThan(reply);
    expect(Math.max(...raw.batches.map(({ updates }) => updates?.length ?? 0))).toBe(200);
    const state = new Map<string, string>();
    applyUpdates(state, raw.updates);
    expect(state).toEqual((await listAll(server, token, RUNS)).versions);
    // Live now: nothing is said twice.
    await server.write({ key: `run:${org}-0`, version: 2, org, payload: {} });
    await raw.frame("a live update", (frame) => frame.update_batch?.updates?.[0]?.doc_version === "2");
    expect(raw.batches.map((batch) => batch.replay_complete ?? false).filter(Boolean)).toHaveLength(1);
    const end = raw.batches.find((batch) => batch.replay_complete)!;
    expect(watermarkOf(end.through)).toBe(watermarkOf(current[RUNS]));
  });

  test("of nothing is complete at once", async () => {
    const { connect } = await viewer();
    await using raw = await connect();
    await raw.subscribe(RUNS, ALL);
    const { update_batch } = await complete(raw);
    expect(update_batch).toMatchObject({ topic: RUNS, updates: [], through: { epoch: expect.any(String) } });
  });

  test("has at most 2 MB of payloads in a batch", async () => {
    const { org, connect } = await viewer();
    await fill(org, 25, () => ({ text: "x".repeat(200_000) }));
    await using raw = await connect();
    await raw.subscribe(RUNS, ALL);
    await complete(raw);
    expect(raw.updates).toHaveLength(25);
    const sizes = raw.batches.map(({ updates = [] }) =>
      updates.reduce((sum, { payload }) => sum + JSON.stringify(payload).length, 0),
    );
    expect(Math.max(...sizes)).toBeLessThanOrEqual(2 << 20);
    expect(Math.max(...sizes)).toBeGreaterThan(1 << 20);
  });

  test("stays within 200 when rows for everybody and for one viewer alternate", async () => {
    const { org, connect } = await viewer();
    for (let i = 0; i < 250; i++) {
      const documents = { mine: ["user-1"], ours: undefined, theirs: ["user-2"] };
      await server.writeAll(
        Object.entries(documents).map(([id, audience]) => ({
          key: `run:${org}-${id}-${i}`,
          version: 1,
          org,
          payload: {},
          ...(audience && { audience }),
        })),
      );
    }
    await server.caughtUp(RUNS);
    await using raw = await connect();
    await raw.subscribe(RUNS, ALL);
    await complete(raw);
    expect(Math.max(...raw.batches.map(({ updates }) => updates?.length ?? 0))).toBe(200);
    const state = new Map<string, string>();
    applyUpdates(state, raw.updates);
    expect(state.size).toBe(500);
    expect([...state.keys()].filter((key) => key.includes("theirs"))).toEqual([]);
  });

  test("may skip superseded versions, and always has the newest", async () => {
    const { org, connect } = await viewer();
    for (let version = 1; version <= 40; version++) {
      await server.writeAll(
        ["a", "b", "c"].map((id) => ({ key: `run:${org}-${id}`, version, org, payload: { version } })),
      );
    }
    await server.write({ key: `run:${org}-c`, version: 41, org });
    await server.caughtUp(RUNS);
    await using raw = await connect();
    await raw.subscribe(RUNS, ALL);
    await complete(raw);
    expect(raw.updates).toMatchObject([
      { doc_key: `run:${org}-a`, doc_version: "40", op: "upsert", payload: { version: 40 } },
      { doc_key: `run:${org}-b`, doc_version: "40", op: "upsert", payload: { version: 40 } },
      { doc_key: `run:${org}-c`, doc_version: "41", op: "delete" },
    ]);
    expect(raw.updates[2]).not.toHaveProperty("payload");
  });

  test("leaves out a payload over 256 KB, which clients fetch, and fetch again only after a change", async () => {
    const { org, token, connect } = await viewer();
    const payload = { text: "x".repeat(256 << 10) };
    await using before = await connect();
    await before.subscribe(RUNS);
    await server.write({ key: `run:${org}`, version: 1, org, payload });
    await server.caughtUp(RUNS);
    await using raw = await connect();
    await raw.subscribe(RUNS, ALL);
    await complete(raw);
    const [update] = raw.updates;
    expect(update).toMatchObject({ fetch_required: true, op: "upsert", payload_hash: expect.any(String) });
    expect(update).not.toHaveProperty("payload");
    await until("the live update", () => before.updates.length, { on: before });
    expect(before.updates).toEqual(raw.updates);

    const path = `/sync/v1/doc/run:${org}`;
    const fetched = await server.request(path, token);
    const etag = fetched.headers.get("etag")!;
    expect(etag).toBe(`"${update!.payload_hash}"`);
    expect(await fetched.json()).toMatchObject({ doc_key: `run:${org}`, doc_version: "1", payload });
    const again = await server.request(path, token, { headers: { "if-none-match": etag } });
    expect([again.status, await again.text()]).toEqual([304, ""]);
    await server.write({ key: `run:${org}`, version: 2, org, payload: {} });
    expect((await server.request(path, token, { headers: { "if-none-match": etag } })).status).toBe(200);
  });

  test("has the same content in protobuf", async () => {
    const { org, connect } = await viewer({ encoding: "proto" });
    await fill(org, 300, (i) => ({ i, text: "é€😀" }));
    await using raw = await connect();
    raw.cast("sync:v1", "subscribe", { topics: [RUNS], resume_after: ALL });
    await complete(raw);
    expect(raw.updates).toHaveLength(300);
    applyUpdates(new Map(), raw.updates);
    const payload = JSON.parse(String(Buffer.from(String(raw.updates[7]!.payload), "base64")));
    expect(payload).toMatchObject({ text: "é€😀" });
    expect(raw.received.filter(({ event }) => event === "frame").every(({ binary }) => binary)).toBe(true);
  });
});
