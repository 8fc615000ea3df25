import { defineModel } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { listPage } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { trimTopic } from "../../packages/server/src/sync/rebuild/retention.ts";

interface Task {
  readonly project_id?: string;
  readonly title?: string;
}

const TASKS = "app.tasks";
const define = (by: readonly ("project_id" | "title")[]) =>
  defineModel<Task>({ topic: TASKS, prefix: "task", streams: [], project: (before) => before, by });
const tasks = define(["project_id"]);
const CARDS = "app.cards";
const cards = defineModel({
  topic: CARDS,
  prefix: "card",
  streams: [],
  project: (before: Task | null) => before,
  by: ["title", "project_id"],
});
const P1 = `${TASKS}?project_id=p1`;
const P2 = `${TASKS}?project_id=p2`;

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

/** Where replays read from: the rows in memory, or the database. */
describe.each([
  { from: "memory", settings: {} },
  { from: "the database", settings: { KHALA_TAIL_BYTES: "0", KHALA_REPLAY_MAX_UPDATES: "3" } },
  {
    from: "the database, in pointer mode",
    settings: { KHALA_TAIL_BYTES: "0", KHALA_PAYLOAD_MODE: "pointer" },
  },
])("parts that are replayed from $from", ({ settings }) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startServer(database.url, { models: [tasks, cards], settings });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  let orgs = 0;
  async function world() {
    const org = `${settings.KHALA_TAIL_BYTES ?? "m"}-${settings.KHALA_PAYLOAD_MODE ?? "i"}-${++orgs}`;
    const versions = new Map<string, number>();
    return {
      org,
      token: (sub = "ann") => server.token({ org_id: org, sub }),
      async connect(sub = "ann") {
        const raw = await RawClient.connect(server.socketUrl, {
          token: await server.token({ org_id: org, sub }),
        });
        await raw.join();
        return raw;
      },
      /** Without a document it is deleted. */
      async put(id: string, payload?: Task, audience?: string[], model = tasks) {
        const version = (versions.get(id) ?? 0) + 1;
        versions.set(id, version);
        const document = { key: `${model.prefix}:${id}`, version, org, model };
        await server.write({ ...document, ...(payload && { payload }), ...(audience && { audience }) });
      },
      /** The versions of one document, in one commit. */
      putAll: (payloads: readonly Task[]) =>
        server.writeAll(
          payloads.map((payload, i) => ({ key: "task:1", version: i + 1, org, model: tasks, payload })),
        ),
    };
  }

  /** What a socket was told of a topic or part: the operation and the id of each update. */
  const toldOf = (raw: RawClient, name: string) =>
    raw.batches
      .filter(({ topic }) => topic === name)
      .flatMap(({ updates = [] }) => updates.map(({ op, doc_key }) => `${op} ${doc_key.slice(5)}`));
  const replayed = (raw: RawClient, name: string) =>
    until("the replay", () => raw.batches.some((batch) => batch.topic === name && batch.replay_complete), {
      on: raw,
    });

  test("a part has only its documents, live and replayed", async () => {
    const { put, connect } = await world();
    await using raw = await connect();
    await raw.subscribe([P1, TASKS]);
    await put("1", { project_id: "p1" });
    await put("2", { project_id: "p2" });
    await put("3", {});
    await put("4", { project_id: "p1" });
    await until("the last one", () => toldOf(raw, TASKS).length === 4, { on: raw });
    expect(toldOf(raw, P1)).toEqual(["upsert 1", "upsert 4"]);
    await using later = await connect();
    await later.subscribe([P1, P2], { [P1]: { watermark: "0" }, [P2]: { watermark: "0" } });
    await Promise.all([replayed(later, P1), replayed(later, P2)]);
    expect(toldOf(later, P1)).toEqual(["upsert 1", "upsert 4"]);
    expect(toldOf(later, P2)).toEqual(["upsert 2"]);
  });

  test("a part of several fields has the documents with all of the values, live, replayed and listed", async () => {
    const { put, connect, token } = await world();
    const both = `${CARDS}?project_id=p1&title=a%26b`;
    await using raw = await connect();
    await raw.subscribe([both, CARDS]);
    // One after the other: versions of a card that are read together are delivered as one.
    let count = 0;
    const place = async (id: string, project_id?: string, title?: string) => {
      const card =
        project_id === undefined ? undefined : { project_id, ...(title !== undefined && { title }) };
      await put(id, card, undefined, cards as typeof tasks);
      count++;
      await until("the change", () => toldOf(raw, CARDS).length === count, { on: raw });
    };
    await place("1", "p1", "a&b");
    await place("2", "p1", "other");
    await place("3", "p2", "a&b");
    await place("2", "p1", "a&b");
    await place("1", "p2", "a&b");
    await place("2");
    await place("4", "p1", "a&b");
    const told = ["upsert 1", "upsert 2", "delete 1", "delete 2", "upsert 4"];
    expect(toldOf(raw, both)).toEqual(told);
    await using later = await connect();
    await later.subscribe([both], { [both]: { watermark: "0" } });
    await replayed(later, both);
    expect(toldOf(later, both).slice(-3)).toEqual(told.slice(-3));
    const { documents, cursor } = await listPage(server, await token(), CARDS, "title=a%26b&project_id=p1");
    expect(documents.map(({ doc_key }) => doc_key)).toEqual(["card:4"]);
    await place("5", "p1", "a&b");
    await using next = await connect();
    await next.subscribe([both], { [both]: cursor });
    // Replayed or live: the gateway may not have heard of it yet.
    await until("the card", () => toldOf(next, both).length > 0, { on: next });
    expect(toldOf(next, both)).toEqual(["upsert 5"]);
  });

  test("a document that moves is deleted in its old part, and appears in the new one", async () => {
    const { put, connect } = await world();
    await using raw = await connect();
    await put("1", { project_id: "p1" });
    await server.caughtUp(TASKS);
    const before = await raw.subscribe([P1, P2]);
    await put("1", { project_id: "p2" });
    await until("the move", () => toldOf(raw, P2).length === 1, { on: raw });
    await put("1");
    await until("the end", () => toldOf(raw, P2).length === 2, { on: raw });
    expect(toldOf(raw, P1)).toEqual(["delete 1"]);
    expect(toldOf(raw, P2)).toEqual(["upsert 1", "delete 1"]);
    await using later = await connect();
    await later.subscribe([P1, P2], before);
    await Promise.all([replayed(later, P1), replayed(later, P2)]);
    expect(toldOf(later, P1)).toEqual(["delete 1"]);
    expect(toldOf(later, P2).at(-1)).toBe("delete 1");
  });

  test("moves that commit together reach every part in between", async () => {
    const { putAll, connect } = await world();
    await using raw = await connect();
    await raw.subscribe([TASKS, P1, P2]);
    await putAll(["p1", "p2", "p1", "p2", "p3"].map((project_id) => ({ project_id })));
    // In pointer mode the versions before the newest may be left out.
    await until("the last one", () => raw.updates.some(({ doc_version }) => doc_version === "5"), {
      on: raw,
    });
    expect([toldOf(raw, P1).at(-1), toldOf(raw, P2).at(-1)]).toEqual(["delete 1", "delete 1"]);
    await using later = await connect();
    const P3 = `${TASKS}?project_id=p3`;
    await later.subscribe([P1, P2, P3], {
      [P1]: { watermark: "0" },
      [P2]: { watermark: "0" },
      [P3]: { watermark: "0" },
    });
    await Promise.all([P1, P2, P3].map((name) => replayed(later, name)));
    expect([P1, P2, P3].map((name) => toldOf(later, name).at(-1))).toEqual([
      "delete 1",
      "delete 1",
      "upsert 1",
    ]);
  });

  test("a part shows a viewer what the topic would, and removes documents it may no longer see", async () => {
    const { put, connect, token } = await world();
    await using raw = await connect("ann");
    await raw.subscribe([P1, TASKS]);
    await put("1", { project_id: "p1" }, ["bob"]);
    await put("2", { project_id: "p1" }, ["ann", "bob"]);
    await put("2", { project_id: "p1" }, ["bob"]);
    await put("3", { project_id: "p1" });
    await until("the last one", () => toldOf(raw, TASKS).at(-1) === "upsert 3", { on: raw });
    expect(toldOf(raw, P1)).toEqual(toldOf(raw, TASKS));
    expect(toldOf(raw, P1).slice(-2)).toEqual(["delete 2", "upsert 3"]);
    await using later = await connect("ann");
    await later.subscribe(P1, { [P1]: { watermark: "0" } });
    await replayed(later, P1);
    expect(toldOf(later, P1)).toEqual(["delete 2", "upsert 3"]);
    const page = await listPage(server, await token("ann"), TASKS, "project_id=p1");
    expect(page.documents.map(({ doc_key }) => doc_key)).toEqual(["task:3"]);
  });

  test("one document can be followed by its key, and not by another org", async () => {
    const { put, connect } = await world();
    const other = await world();
    await using raw = await connect();
    const one = `${TASKS}?doc_key=${encodeURIComponent("task:ä 1")}`;
    await raw.subscribe([one, TASKS]);
    await other.put("ä 1", { title: "theirs" });
    await put("2", { title: "another" });
    await put("ä 1", { title: "mine" });
    await until("the last one", () => toldOf(raw, TASKS).length === 2, { on: raw });
    expect(toldOf(raw, one)).toEqual(["upsert ä 1"]);
    await using later = await connect();
    await later.subscribe(one, { [one]: { watermark: "0" } });
    await replayed(later, one);
    expect(toldOf(later, one)).toEqual(["upsert ä 1"]);
  });

  test("a list of a part has a cursor for that part only", async () => {
    const { put, connect, token } = await world();
    await put("1", { project_id: "p1" });
    await put("2", { project_id: "p2" });
    const page = await listPage(server, await token(), TASKS, "project_id=p1");
    expect(page.documents.map(({ doc_key }) => doc_key)).toEqual(["task:1"]);
    await put("3", { project_id: "p1" });
    await using raw = await connect();
    await raw.subscribe([P1, TASKS, P2], { [P1]: page.cursor, [TASKS]: page.cursor, [P2]: page.cursor });
    await until("the update", () => toldOf(raw, P1).length === 1, { on: raw });
    expect(toldOf(raw, P1)).toEqual(["upsert 3"]);
    // Of another part it would miss what is only there.
    await until(
      "two refusals",
      () => raw.frames.filter(({ error }) => error?.code === "stale_cursor").length === 2,
      { on: raw },
    );
    const byKey = await listPage(server, await token(), TASKS, `doc_key=${encodeURIComponent("task:2")}`);
    expect(byKey.documents.map(({ doc_key }) => doc_key)).toEqual(["task:2"]);
  });
});

test("refuses an undeclared part with its field and the declared ones", async () => {
  await using server = await startServer(database.url, { models: [tasks, cards] });
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const refused = async (name: string) => {
    const { status, response } = await raw.push("sync:v1", "subscribe", { topics: [name] });
    expect(status).toBe("error");
    return (response as { error: { code: string; message: string; field?: string } }).error;
  };
  expect(await refused(`${TASKS}?title=x`)).toMatchObject({
    code: "invalid_request",
    field: "topics",
    message: expect.stringContaining("app.tasks?project_id=<value> and app.tasks?doc_key=<value>"),
  });
  for (const wrong of [
    "?",
    "?project_id=a&project_id=b",
    "?project_id=a b",
    "?doc_key=task%3A1&project_id=a",
    "?doc_key=run:1",
    `?project_id=${"x".repeat(201)}`,
  ])
    expect(await refused(TASKS + wrong)).toMatchObject({ code: "invalid_request", field: "topics" });
  expect(await refused(`${CARDS}?title=a&project_id=b`)).toMatchObject({
    message: expect.stringContaining("The part must be written app.cards?project_id=b&title=a"),
  });
  await using stranger = await RawClient.connect(server.socketUrl, {
    token: await server.token({ scopes: [] }),
  });
  await stranger.join();
  const { response } = await stranger.push("sync:v1", "subscribe", { topics: [P1] });
  expect(response).toMatchObject({ error: { code: "forbidden_topic" } });
});

test("ignores an unknown field in subscribe", async () => {
  await using server = await startServer(database.url, { models: [tasks] });
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  const { status } = await raw.push("sync:v1", "subscribe", { topics: [TASKS], newer: { than: "this" } });
  expect(status).toBe("ok");
});

test("a cursor from before a part was declared, or from a server without it, is stale", async () => {
  await using own = await testDatabase();
  const undeclared = define([]);
  const write = (server: TestServer, id: string, model = tasks) =>
    server.write({ key: `task:${id}`, version: 1, org: "org-1", payload: { project_id: "p1" }, model });
  await using old = await startServer(own.url, { models: [undeclared] });
  await write(old, "1", undeclared);
  await using server = await startServer(own.url, { models: [tasks] });
  const token = await server.token();
  const { cursor, documents } = await listPage(server, token, TASKS, "project_id=p1");
  expect(documents).toHaveLength(1);
  await using raw = await RawClient.connect(server.socketUrl, { token });
  await raw.join();
  const stales = () => raw.frames.filter(({ error }) => error?.code === "stale_cursor").length;
  await raw.subscribe(P1, { [P1]: cursor });
  await write(server, "2");
  await until("the update", () => raw.updates.length === 1, { on: raw });
  expect(stales()).toBe(0);
  // What the older server writes is in unknown parts: who follows one lists again.
  await write(old, "3", undeclared);
  await until("the live one is ended", () => stales() === 1, { on: raw });
  await raw.subscribe(P1, { [P1]: cursor });
  await until("the cursor is refused", () => stales() === 2, { on: raw });
});

test("retention moves the floor of parts, and removes their rows", async () => {
  await using own = await testDatabase();
  await using server = await startServer(own.url, { models: [tasks] });
  for (const id of ["1", "2"])
    await server.write({
      key: `task:${id}`,
      version: 1,
      org: "org-1",
      payload: { project_id: "p1" },
      model: tasks,
    });
  const { cursor } = await listPage(server, await server.token(), TASKS, "project_id=p1");
  const text = "SELECT count(*)::int AS rows FROM runtime.sync_stream_parts";
  expect(await own.database.query({ text })).toEqual([{ rows: 2 }]);
  await trimTopic(own.database, tasks, -60_000);
  expect(await own.database.query({ text })).toEqual([{ rows: 0 }]);
  await server.write({
    key: "task:3",
    version: 1,
    org: "org-1",
    payload: { project_id: "p1" },
    model: tasks,
  });
  await using raw = await RawClient.connect(server.socketUrl, { token: await server.token() });
  await raw.join();
  await server.caughtUp(TASKS);
  await raw.subscribe(P1, { [P1]: cursor });
  await until("the update", () => raw.updates.length === 1, { on: raw });
  await raw.subscribe(P1, { [P1]: { ...cursor, watermark: "1" } });
  await until("the refusal", () => raw.frames.some(({ error }) => error?.code === "stale_cursor"), {
    on: raw,
  });
});
