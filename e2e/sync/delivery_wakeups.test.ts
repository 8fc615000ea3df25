import { runs } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

/** A server that writes and one that serves sockets. */
async function twoServers(settings: Record<string, string>, own = database) {
  const writer = await startServer(own.url, { settings });
  const reader = await startServer(own.url, { settings });
  return {
    writer,
    reader,
    async [Symbol.asyncDispose]() {
      await Promise.all([writer[Symbol.asyncDispose](), reader[Symbol.asyncDispose]()]);
    },
  };
}

const NEVER = "600000";

async function following(server: TestServer, org: string): Promise<RawClient> {
  const raw = await RawClient.connect(server.socketUrl, { token: await server.token({ org_id: org }) });
  await raw.join();
  await raw.subscribe(RUNS);
  return raw;
}

/** Server processes that listen for wakeups. */
const LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
const listeners = async () => (await database.database.query({ text: `SELECT pid ${LISTENERS}` })).length;

test("a wakeup delivers another server's write, without a poll", async () => {
  await using servers = await twoServers({ KHALA_WAKEUPS: "on", KHALA_POLL_MS: NEVER });
  await until("both listen", async () => (await listeners()) === 2);
  await using raw = await following(servers.reader, "woken");
  await servers.writer.write({ key: "run:woken", version: 1, org: "woken", payload: {} });
  await until("the update", () => raw.updates.length, { on: raw });
});

test("an event reaches the projecting server from any other, without a poll", async () => {
  await using servers = await twoServers({ KHALA_WAKEUPS: "on", KHALA_POLL_MS: NEVER });
  const both = [servers.writer, servers.reader];
  await until("both listen", async () => (await listeners()) === 2);
  await until("one projects", () => both.filter(({ khala }) => khala.sync.projecting()).length === 1);
  await using raw = await following(servers.reader, "events");
  for (const [at, { khala }] of both.entries()) {
    const event = { event_id: `e${at}`, type: "run.started", data: { title: `Run ${at}` } };
    await khala.authority.append({
      stream: runs,
      streamId: `r${at}`,
      events: [event],
      org: "events",
      actor: "ada",
    });
    await until("the update", () => raw.updates.length === at + 1, { on: raw });
  }
});

test("with wakeups off, the poll delivers", async () => {
  await using servers = await twoServers({ KHALA_WAKEUPS: "off", KHALA_POLL_MS: "50" });
  expect(await listeners()).toBe(0);
  await using raw = await following(servers.reader, "polled");
  for (let version = 1; version <= 3; version++) {
    await servers.writer.write({ key: "run:polled", version, org: "polled", payload: {} });
    await until("the update", () => raw.updates.length === version, { on: raw });
  }
});

test("delivery continues while the connection for wakeups is killed again and again", async () => {
  await using servers = await twoServers({ KHALA_WAKEUPS: "on", KHALA_POLL_MS: "50" });
  await until("both listen", async () => (await listeners()) === 2);
  await using raw = await following(servers.reader, "killed");
  for (let version = 1; version <= 5; version++) {
    await database.database.query({ text: `SELECT pg_terminate_backend(pid) ${LISTENERS}` });
    await servers.writer.write({ key: "run:killed", version, org: "killed", payload: {} });
    await until("the update", () => raw.updates.length === version, { on: raw });
  }
});

test("a listener that reconnects reads at once what it missed", async () => {
  await using servers = await twoServers({ KHALA_WAKEUPS: "on", KHALA_POLL_MS: NEVER });
  await until("both listen", async () => (await listeners()) === 2);
  await using raw = await following(servers.reader, "missed");
  await database.database.query({ text: `SELECT pg_terminate_backend(pid) ${LISTENERS}` });
  await servers.writer.write({ key: "run:missed", version: 1, org: "missed", payload: {} });
  await until("the update", () => raw.updates.length, { on: raw });
  await until("both listen again", async () => (await listeners()) === 2);
});

describe("many concurrent resumes", () => {
  const ROWS = 450;
  const reads = (server: TestServer) => server.metric("khala_sync_journal_reads_total", { topic: RUNS });

  /** Lets clients come back at the same moment, each a subject of its own; resolves with the reads of the journal that it took. */
  async function stampede(server: TestServer, org: string, count: number): Promise<number> {
    const connect = async (_: unknown, i: number) => {
      const token = await server.token({ org_id: org, sub: `user-${i}` });
      const raw = await RawClient.connect(server.socketUrl, { token });
      await raw.join();
      return raw;
    };
    const clients = await Promise.all(Array.from({ length: count }, connect));
    const before = await reads(server);
    for (const raw of clients)
      raw.cast("sync:v1", "subscribe", { topics: [RUNS], resume_after: { [RUNS]: { watermark: "0" } } });
    for (const raw of clients) {
      await raw.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
      expect(raw.updates.length).toBe(ROWS);
    }
    const after = await reads(server);
    await Promise.all(clients.map((raw) => raw[Symbol.asyncDispose]()));
    return after - before;
  }

  test.each([
    { from: "memory", settings: {}, most: 2 },
    // Three batches each; sockets that ask while a read is under way share the next one.
    { from: "the database", settings: { KHALA_TAIL_BYTES: "0" }, most: 15 },
  ])("cost a constant number of reads from $from", async ({ settings, most }) => {
    await using own = await testDatabase();
    await using server = await startServer(own.url, { settings: { ...settings, KHALA_POLL_MS: NEVER } });
    const org = "stampede";
    const document = (_: unknown, i: number) => ({ key: `run:${i}`, version: 1, org, payload: { i } });
    await server.writeAll(Array.from({ length: ROWS }, document));
    await server.caughtUp(RUNS);
    const few = await stampede(server, org, 30);
    const many = await stampede(server, org, 300);
    expect(few).toBeLessThanOrEqual(most);
    expect(many).toBeLessThanOrEqual(most);
  });
});
