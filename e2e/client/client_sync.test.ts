import { createSyncClient, type SyncClient, type SyncClientOptions } from "@khala/client/sync";
import { KhalaError } from "@khala/contracts";
import { runSummaries } from "@khala/server";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { RUNS, startServer, type TestServer, WORKERS } from "@khala/test-support/servers/servers";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { memory } from "../../packages/client/src/storage/memory.ts";
import { trimTopic } from "../../packages/server/src/sync/rebuild/retention.ts";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, {
    settings: { KHALA_POLL_MS: "20", KHALA_REPLAY_MAX_UPDATE_BYTES: "2000" },
  });
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const open: SyncClient[] = [];
afterEach(async () => {
  for (const client of open.splice(0)) await client.close();
});

function client(options: Partial<SyncClientOptions> & { org: string; at?: TestServer }): SyncClient {
  const { org, at = server, ...rest } = options;
  const made = createSyncClient({ url: at.url, token: () => at.token({ org_id: org }), ...rest });
  open.push(made);
  return made;
}

const write = (org: string, i: number, version = 1, payload: object | null = { version }) =>
  server.write({ key: `run:${org}-${i}`, version, org, ...(payload && { payload }) });

async function fill(org: string, count: number, version = 1): Promise<void> {
  const document = (_: unknown, i: number) => ({
    key: `run:${org}-${i}`,
    version,
    org,
    payload: { version },
  });
  await server.writeAll(Array.from({ length: count }, document));
  await server.caughtUp(RUNS);
}

const keys = ({ sync }: SyncClient) => sync.list(RUNS).items.map(({ key }) => key);
const versions = ({ sync }: SyncClient) => sync.list(RUNS).items.map(({ version }) => version);
const live = (khala: SyncClient) => until("live", () => khala.sync.list(RUNS).phase === "live");

test("lists a topic first, then follows it; snapshots stay the same objects until they change", async () => {
  const org = "list-live";
  await fill(org, 3);
  const khala = client({ org });
  expect(khala.sync.list(RUNS)).toMatchObject({ items: [], phase: "loading" });
  let told = 0;
  let toldOfOne = 0;
  khala.sync.subscribe(RUNS, () => told++);
  khala.sync.subscribe(RUNS, `run:${org}-1`, () => toldOfOne++);
  await live(khala);
  expect(keys(khala)).toEqual([0, 1, 2].map((i) => `run:${org}-${i}`));
  await until("the connection is live", () => khala.connection.status().state === "live");
  const list = khala.sync.list(RUNS);
  const first = khala.sync.get(RUNS, `run:${org}-0`);
  expect(khala.sync.list(RUNS)).toBe(list);
  expect(khala.sync.get(RUNS, `run:${org}-0`)).toBe(first);
  expect(first).toMatchObject({ data: { version: 1 }, version: "1", phase: "live", stale: false });

  told = toldOfOne = 0;
  await write(org, 1, 2);
  await until("the update", () => khala.sync.get(RUNS, `run:${org}-1`).version === "2");
  await until("listeners hear of it", () => told && toldOfOne);
  expect(khala.sync.list(RUNS)).not.toBe(list);
  expect(khala.sync.list(RUNS).items[0]).toBe(list.items[0]);
  expect(khala.sync.get(RUNS, `run:${org}-0`)).toBe(first);
});

test("loads more documents than fit into a page", async () => {
  const org = "pages";
  await fill(org, 1_203);
  const khala = client({ org });
  khala.sync.subscribe(RUNS, () => {});
  await khala.sync.ready(RUNS);
  expect(keys(khala)).toHaveLength(1_203);
  expect(keys(khala)).toEqual([...keys(khala)].sort());
});

test("resumes after a disconnect without a gap, and keeps the documents on the screen", async () => {
  const org = "cut";
  await fill(org, 5);
  const { port } = new URL(server.url);
  await using proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(port) });
  const khala = client({ org, url: proxy.through(server.url) });
  const seen: number[] = [];
  khala.sync.subscribe(RUNS, () => seen.push(khala.sync.list(RUNS).items.length));
  await live(khala);
  for (let round = 2; round < 5; round++) {
    proxy.refuse();
    await until("the line is down", () => khala.sync.list(RUNS).phase === "offline");
    expect(khala.connection.status()).toMatchObject({ state: "connecting", error: { code: "unavailable" } });
    await fill(org, 5, round);
    await write(org, 5 + round, 1);
    proxy.resume();
    await until("it is live again", () => khala.sync.list(RUNS).phase === "live");
    await until(
      "all is there",
      () => versions(khala).filter((version) => version === String(round)).length === 5,
    );
  }
  expect(keys(khala)).toHaveLength(8);
  expect(Math.min(...seen.slice(seen.indexOf(5)))).toBe(5);
});

test("a deleted document disappears, and does not return", async () => {
  const org = "deleted";
  await fill(org, 3);
  const khala = client({ org });
  khala.sync.subscribe(RUNS, () => {});
  await live(khala);
  await write(org, 1, 2, null);
  await until("it is gone", () => keys(khala).length === 2);
  expect(khala.sync.get(RUNS, `run:${org}-1`)).toEqual({ phase: "live", stale: false });
});

test("replaces a stale position with a list, without an empty moment", async () => {
  const org = "stale";
  await fill(org, 10);
  const { port } = new URL(server.url);
  await using proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(port) });
  const khala = client({ org, url: proxy.through(server.url) });
  const seen: number[] = [];
  khala.sync.subscribe(RUNS, () => seen.push(khala.sync.list(RUNS).items.length));
  await live(khala);
  seen.length = 0;
  proxy.refuse();
  await until("the line is down", () => khala.sync.list(RUNS).phase === "offline");
  await fill(org, 10, 2);
  const last = await write(org, 3, 3, null);
  await server.caughtUp(RUNS);
  await trimTopic(database.database, runSummaries, 0);
  await until("the floor", async () => (await server.khala.sync.hub.feed(RUNS)).bounds.floor >= last!);
  const stale = await server.metric("khala_sync_stale_cursors_total");
  proxy.resume();
  await live(khala);
  expect(keys(khala)).toHaveLength(9);
  expect(new Set(versions(khala))).toEqual(new Set(["2"]));
  expect(await server.metric("khala_sync_stale_cursors_total")).toBe(stale + 1);
  await until("listeners hear of it", () => seen.at(-1) === 9);
  expect(Math.min(...seen)).toBe(9);
});

test("fetches a document too large for a frame, and shows the old version until then", async () => {
  const org = "large";
  await write(org, 0, 1, { text: "small" });
  const khala = client({ org });
  const seen: unknown[] = [];
  khala.sync.subscribe(RUNS, `run:${org}-0`, () => seen.push(khala.sync.get(RUNS, `run:${org}-0`).data));
  await live(khala);
  seen.length = 0;
  const text = "x".repeat(5_000);
  await write(org, 0, 2, { text });
  await write(org, 1, 1, { text });
  await until("it is fetched", () => khala.sync.get(RUNS, `run:${org}-0`).version === "2");
  await until("both are there", () => keys(khala).length === 2);
  expect(khala.sync.get(RUNS, `run:${org}-0`)).toMatchObject({ data: { text }, stale: false });
  expect(seen.every((data) => data !== undefined)).toBe(true);
});

test("reports a topic that the token does not name as forbidden, and follows the others", async () => {
  const org = "scopes";
  const khala = client({ org, token: () => server.token({ org_id: org, scopes: [RUNS] }) });
  khala.sync.subscribe(RUNS, () => {});
  khala.sync.subscribe(WORKERS, () => {});
  await expect(khala.sync.ready(WORKERS)).rejects.toMatchObject({ code: "forbidden_topic" });
  expect(khala.sync.list(WORKERS)).toMatchObject({ phase: "forbidden", error: { code: "forbidden_topic" } });
  await live(khala);
  await until("the connection counts as live", () => khala.connection.status().state === "live");
});

test("starts from the storage without a network, and continues from there", async () => {
  const org = "offline-start";
  await fill(org, 4);
  const storage = memory();
  const first = client({ org, storage });
  first.sync.subscribe(RUNS, () => {});
  await live(first);
  await write(org, 0, 2);
  await until("the update", () => versions(first).includes("2"));
  await first.close();

  const { port } = new URL(server.url);
  await using proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(port) });
  const url = proxy.through(server.url);
  const again = client({ org, storage, url });
  again.sync.subscribe(RUNS, () => {});
  await live(again);
  await again.close();
  proxy.refuse();
  let tokens = 0;
  const offline = client({
    org,
    storage,
    url,
    token: () => (tokens++ === 0 ? Promise.reject(new Error("no network")) : server.token({ org_id: org })),
  });
  offline.sync.subscribe(RUNS, () => {});
  await offline.sync.ready(RUNS);
  expect(versions(offline).sort()).toEqual(["1", "1", "1", "2"]);
  await until("it says that it is offline", () => offline.sync.list(RUNS).phase === "offline");
  await write(org, 1, 2);
  proxy.resume();
  await until("it goes on", () => versions(offline).filter((version) => version === "2").length === 2);
});

test("reports a failing storage, continues in memory, and stores no position", async () => {
  const org = "quota";
  await fill(org, 2);
  const storage = memory();
  let full = false;
  const events: string[] = [];
  const failing = {
    ...storage,
    commit: (...change: Parameters<typeof storage.commit>) =>
      full ? Promise.reject(new KhalaError("limit_exceeded", "quota")) : storage.commit(...change),
  };
  const khala = client({ org, storage: failing, log: ({ event }) => events.push(event) });
  khala.sync.subscribe(RUNS, () => {});
  await live(khala);
  full = true;
  await write(org, 0, 2);
  await until("the update", () => versions(khala).includes("2"));
  await until("it is told", () => events.includes("storage_failed"));
  await write(org, 1, 2);
  await until("it goes on", () => versions(khala).filter((version) => version === "2").length === 2);
  const scope = JSON.stringify([server.url, org, "user-1"]);
  await until("nothing is stored", async () => !(await storage.load(scope, RUNS)));
});

test("finds a restarted server again, and misses nothing", async () => {
  const org = "restart";
  const settings = { KHALA_POLL_MS: "20", KHALA_DRAIN_MS: "200" };
  const before = await startServer(database.url, { settings });
  const { port } = new URL(before.url);
  await using proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(port) });
  await fill(org, 3);
  const khala = client({ org, url: proxy.through(before.url) });
  khala.sync.subscribe(RUNS, () => {});
  await live(khala);
  const seen: string[] = [];
  khala.connection.subscribe(() =>
    seen.push(khala.connection.status().error?.code ?? khala.connection.status().state),
  );
  await before[Symbol.asyncDispose]();
  await until("it is noticed", () => khala.sync.list(RUNS).phase === "offline");
  expect(seen).toContain("shutting_down");
  await fill(org, 3, 2);
  await using after = await startServer(database.url, { settings });
  proxy.switchTo({ host: "127.0.0.1", port: Number(new URL(after.url).port) });
  await until("all is there", () => versions(khala).every((version) => version === "2"), {
    deadlineMs: 30_000,
  });
  expect(keys(khala)).toHaveLength(3);
});

test("documents of a restored database replace the old ones, also with lower versions", async () => {
  const org = "restored";
  await using old = await testDatabase();
  await using restored = await testDatabase();
  const [before, after] = await Promise.all([startServer(old.url), startServer(restored.url)]);
  await using _before = before;
  await using _after = after;
  const put = (at: TestServer, i: number, version: number) =>
    at.write({ key: `run:${org}-${i}`, version, org, payload: { version } });
  await Promise.all([put(before, 0, 7), put(before, 1, 7), put(after, 0, 3), put(after, 2, 3)]);
  const proxy = await startTcpProxy({ host: "127.0.0.1", port: Number(new URL(before.url).port) });
  await using _proxy = proxy;
  const khala = client({ org, url: proxy.through(before.url) });
  khala.sync.subscribe(RUNS, () => {});
  await live(khala);
  expect(versions(khala)).toEqual(["7", "7"]);
  proxy.switchTo({ host: "127.0.0.1", port: Number(new URL(after.url).port) });
  proxy.cut();
  await until("the restored documents", () => versions(khala).every((version) => version === "3"));
  expect(keys(khala)).toEqual([`run:${org}-0`, `run:${org}-2`]);
  await put(after, 0, 4);
  await until("it goes on", () => versions(khala)[0] === "4");
});

test("hides another user's documents when the token changes", async () => {
  const org = "hands";
  await server.write({ key: "run:hands-a", version: 1, org, payload: {}, audience: ["ada"] });
  await server.write({ key: "run:hands-b", version: 1, org, payload: {}, audience: ["bob"] });
  await server.caughtUp(RUNS);
  let sub = "ada";
  let token = "";
  const mint = async () => (token = await server.token({ org_id: org, sub }));
  const khala = client({ org, token: mint });
  const seen: string[][] = [];
  khala.sync.subscribe(RUNS, () => seen.push(keys(khala)));
  await live(khala);
  expect(keys(khala)).toEqual(["run:hands-a"]);
  seen.length = 0;
  sub = "bob";
  const { jti } = JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()) as { jti: string };
  const revoked = await server.request(
    "/api/sync/revoke",
    await server.token({ org_id: org, scopes: ["ops"] }),
    {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jti }),
    },
  );
  expect(revoked.status).toBe(204);
  await until("Bob's documents", () => keys(khala).includes("run:hands-b"));
  expect(keys(khala)).toEqual(["run:hands-b"]);
  expect(seen.some((shown) => shown.length > 1)).toBe(false);
});
