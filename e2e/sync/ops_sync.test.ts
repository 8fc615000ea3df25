import type {
  DocumentHistoryJson,
  DocumentListJson,
  ParityJson,
  TopicListJson,
  TraceListJson,
} from "@khala/contracts/ops/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import {
  appendToRun,
  NOTIFICATIONS,
  RUNS,
  startServer,
  type TestServer,
} from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
let server: TestServer;
beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

const operator = (org: string, sub = "user-1", scopes = ["ops", "platform", RUNS]) =>
  server.token({ org_id: org, sub, scopes });

async function get<T>(path: string, token: string): Promise<T> {
  const response = await server.request(path, token);
  expect(response.status, path).toBe(200);
  return (await response.json()) as T;
}

async function refused(path: string, token: string): Promise<unknown> {
  const response = await server.request(path, token);
  const { error } = (await response.json()) as { error: { code: string } };
  return { status: response.status, code: error.code };
}

const keysOf = ({ documents = [] }: DocumentListJson) => documents.map(({ doc_key }) => doc_key);

test("lists every topic with its journal and its projection", async () => {
  const token = await server.token({ scopes: ["ops", "runtime:write"] });
  await appendToRun(server, token, "counted", { type: "run.started", data: { title: "One" } });
  const { topics } = await eventually("the projection", async () => {
    const list = await get<TopicListJson>("/ops/v1/topics", token);
    return Number(list.topics!.find(({ topic }) => topic === RUNS)!.journal_rows) > 0 && list;
  });
  expect(topics!.map(({ topic }) => topic)).toEqual(expect.arrayContaining([RUNS, NOTIFICATIONS]));
  expect(topics!.find(({ topic }) => topic === RUNS)).toMatchObject({
    head: expect.stringMatching(/^\d+$/),
    floor: "0",
    epoch: expect.any(String),
    lag: 0,
    documents: 1,
    journal_bytes: expect.any(Number),
    retention_hours: 72,
    subscribers: 0,
    projection: {
      state: "ok",
      position: expect.stringMatching(/^\d+$/),
      head: expect.stringMatching(/^\d+$/),
    },
  });
});

describe("documents", () => {
  test("are found by part of their key or content, page by page, with the short fields", async () => {
    for (const name of ["alpha-1", "alpha-2", "alpha-3", "beta-1"])
      await server.write({ key: `run:${name}`, version: 1, org: "finders", payload: { name } });
    const token = await operator("finders");
    const path = `/ops/v1/documents?topic=${RUNS}`;
    expect(keysOf(await get(path, token))).toHaveLength(4);
    const first = await get<DocumentListJson>(`${path}&search=pha&limit=2`, token);
    expect(keysOf(first)).toEqual(["run:alpha-1", "run:alpha-2"]);
    expect(first.documents![0]).toEqual({
      doc_key: "run:alpha-1",
      doc_version: "1",
      updated_at: expect.stringMatching(/^\d{4}-.*Z$/),
      bytes: 18,
      audience: [],
      preview: { name: "alpha-1" },
    });
    const rest = await get<DocumentListJson>(`${path}&search=pha&limit=2&after=${first.next}`, token);
    expect(keysOf(rest)).toEqual(["run:alpha-3"]);
    expect(rest.next).toBeUndefined();
    expect(keysOf(await get(`${path}&search=nothing`, token))).toEqual([]);
  });

  test("of another org, or for other viewers, are not found", async () => {
    await server.write({ key: "run:org-wide", version: 1, org: "mine", payload: {} });
    await server.write({ key: "run:for-ada", version: 1, org: "mine", payload: {}, audience: ["ada"] });
    await server.write({ key: "run:theirs", version: 1, org: "theirs", payload: {} });
    const path = `/ops/v1/documents?topic=${RUNS}`;
    expect(keysOf(await get(path, await operator("mine", "bob")))).toEqual(["run:org-wide"]);
    const own = await get<DocumentListJson>(path, await operator("mine", "ada"));
    expect(keysOf(own)).toEqual(["run:for-ada", "run:org-wide"]);
    expect(own.documents![0]!.audience).toEqual(["ada"]);
  });

  test("need the topic's scope too", async () => {
    const token = await operator("mine", "ada", ["ops"]);
    expect(await refused(`/ops/v1/documents?topic=${RUNS}`, token)).toEqual({
      status: 403,
      code: "forbidden_topic",
    });
    expect(await refused("/ops/v1/documents", token)).toEqual({ status: 400, code: "invalid_request" });
    const limit = await refused(`/ops/v1/documents?topic=${RUNS}&limit=1001`, await operator("mine"));
    expect(limit).toEqual({ status: 400, code: "invalid_request" });
  });

  test("a search over many documents returns where to continue", async () => {
    await database.database.query({
      text: `INSERT INTO runtime.sync_run_summaries (doc_key, doc_version, payload, org_id, watermark)
        SELECT 'run:many-' || lpad(i::text, 6, '0'), 1, '{}', 'crowd', 0 FROM generate_series(1, 11000) i`,
    });
    const token = await operator("crowd");
    const found: string[] = [];
    let after: string | undefined = "";
    let asked = 0;
    for (; after !== undefined && asked < 10; asked++) {
      const path: string = `/ops/v1/documents?topic=${RUNS}&search=010999&after=${after}`;
      const page: DocumentListJson = await get(path, token);
      found.push(...keysOf(page).map(String));
      after = page.next;
    }
    expect(found).toEqual(["run:many-010999"]);
    expect(asked).toBe(3);
  });
});

describe("history", () => {
  test("has every version, newest first, with what changed", async () => {
    const write = (version: number, payload?: object) =>
      server.write({ key: "run:told", version, org: "tellers", ...(payload && { payload }) });
    await write(1, { step: 1 });
    await write(2, { step: 2 });
    await write(3);
    const { entries } = await get<DocumentHistoryJson>("/ops/v1/history/run:told", await operator("tellers"));
    expect(entries).toMatchObject([
      { doc_version: "3", op: "delete" },
      {
        doc_version: "2",
        op: "upsert",
        payload: { step: 2 },
        payload_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      },
      { doc_version: "1", op: "upsert", payload: { step: 1 }, committed_at: expect.stringMatching(/Z$/) },
    ]);
    expect(entries![0]!.payload).toBeUndefined();
    const [newest] = (
      await get<DocumentHistoryJson>("/ops/v1/history/run:told?limit=1", await operator("tellers"))
    ).entries!;
    expect(newest!.doc_version).toBe("3");
  });

  test("of a document for other viewers is not found, and neither is that of another org", async () => {
    await server.write({
      key: "run:private",
      version: 1,
      org: "house",
      payload: { a: 1 },
      audience: ["ada"],
    });
    const path = "/ops/v1/history/run:private";
    expect((await get<DocumentHistoryJson>(path, await operator("house", "ada"))).entries).toHaveLength(1);
    const nowhere = { status: 404, code: "not_found" };
    expect(await refused(path, await operator("house", "bob"))).toEqual(nowhere);
    expect(await refused(path, await operator("garden", "ada"))).toEqual(nowhere);
    expect(await refused(path, await operator("house", "ada", ["ops"]))).toEqual(nowhere);
    expect(await refused("/ops/v1/history/run:nothing", await operator("house"))).toEqual(nowhere);
    expect(await refused("/ops/v1/history/nonsense", await operator("house"))).toEqual(nowhere);
  });

  test("leaves out versions that others saw before the document was shared", async () => {
    await server.write({
      key: "run:shared",
      version: 1,
      org: "house",
      payload: { draft: true },
      audience: ["ada"],
    });
    await server.write({ key: "run:shared", version: 2, org: "house", payload: { draft: false } });
    const path = "/ops/v1/history/run:shared";
    const { entries } = await get<DocumentHistoryJson>(path, await operator("house", "bob"));
    expect(entries).toMatchObject([{ doc_version: "2", payload: { draft: false } }]);
    expect((await get<DocumentHistoryJson>(path, await operator("house", "ada"))).entries).toHaveLength(2);
  });

  test("ends for a viewer who lost the document", async () => {
    await server.write({ key: "run:closed", version: 1, org: "house", payload: { open: true } });
    await server.write({
      key: "run:closed",
      version: 2,
      org: "house",
      payload: { open: false },
      audience: ["ada"],
    });
    const path = "/ops/v1/history/run:closed";
    expect(await refused(path, await operator("house", "bob"))).toEqual({ status: 404, code: "not_found" });
    const { entries } = await get<DocumentHistoryJson>(path, await operator("house", "ada"));
    expect(entries!.map(({ doc_version }) => doc_version)).toEqual(["2", "1"]);
  });
});

test("parity reports the lag of the mirror, and that there is none without one", async () => {
  const token = await operator("org-1");
  expect(await get<ParityJson>("/ops/v1/parity", token)).toEqual({ sink: "none", topics: [] });
  await using own = await testDatabase();
  await using doubled = await startServer(own.url, { settings: { KHALA_MIRROR: "noop" } });
  const parity = await eventually("that it follows", async () => {
    const answer = (await (await doubled.request("/ops/v1/parity", token)).json()) as ParityJson;
    return answer.topics!.every(({ state }) => state === "following") && answer;
  });
  expect(parity.sink).toBe("noop");
  expect(parity.topics).toContainEqual({ topic: RUNS, state: "following", lag: 0 });
});

test("an operator can compare parity, which counts a different document", async () => {
  await using own = await testDatabase();
  await using convex = await startConvexStandIn();
  const settings = { KHALA_MIRROR: "convex" as const, CONVEX_URL: convex.url };
  await using doubled = await startServer(own.url, { settings });
  const token = await doubled.token({
    org_id: "org-1",
    sub: "user-1",
    scopes: ["ops", "platform", RUNS, "runtime:write"],
  });
  const compare = async () => {
    const answer = await doubled.request("/ops/v1/parity", token, { method: "POST" });
    expect(answer.status).toBe(200);
    return ((await answer.json()) as ParityJson).topics!.find(({ topic }) => topic === RUNS);
  };
  await appendToRun(doubled, token, "parity", { type: "run.started" });
  const held = convex.topic(RUNS);
  await eventually("the mirror has it", () => held.size > 0);
  await eventually("that is known", async () => {
    const answer = (await (await doubled.request("/ops/v1/parity", token)).json()) as ParityJson;
    return answer.topics!.find(({ topic }) => topic === RUNS)?.lag === 0;
  });
  expect(await compare()).toMatchObject({ checked: 1, differences: 0, at: expect.any(String) });
  const [key, document] = [...held][0]!;
  held.set(key, { ...document, payload_hash: "00".repeat(32) });
  expect(await compare()).toMatchObject({ checked: 1, differences: 1 });
});

test("refuses a comparison without a mirror to compare with", async () => {
  const token = await operator("org-1");
  const answer = await server.request("/ops/v1/parity", token, { method: "POST" });
  expect(answer.status).toBe(400);
  expect(await answer.text()).toContain("No mirror is configured");
});

test("a server that starts later has no trace of other servers' updates", async () => {
  await using own = await testDatabase();
  const scopes = ["ops", RUNS, "runtime:write"];
  const pushes = async (from: TestServer, token: string) => {
    const { traces } = (await (await from.request("/ops/v1/traces", token)).json()) as TraceListJson;
    return traces!.filter(({ name }) => name?.startsWith("push "));
  };
  await using first = await startServer(own.url);
  const token = await first.token({ org_id: "org-1", sub: "user-1", scopes });
  await appendToRun(first, token, "early", { type: "run.started" });
  await eventually("it is journalled", async () => {
    const { topics } = (await (await first.request("/ops/v1/topics", token)).json()) as TopicListJson;
    return Number(topics!.find(({ topic }) => topic === RUNS)?.journal_rows ?? 0) > 0;
  });
  await using second = await startServer(own.url);
  const other = await second.token({ org_id: "org-1", sub: "user-1", scopes });
  await second.caughtUp(RUNS);
  expect(await pushes(second, other)).toEqual([]);
});
