import { listPage, watermarkOf } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, expect, test } from "vitest";

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

test("a list returns all documents page by page, in order, each once, and ends with next null", async () => {
  const token = await server.token({ org_id: "paged", sub: "ann" });
  const write = (_: unknown, i: number) =>
    server.write({
      key: `run:${String(i).padStart(3, "0")}`,
      version: 1,
      org: "paged",
      payload: { i },
      ...(i % 3 === 0 && { audience: i % 2 ? ["ann"] : ["bob"] }),
    });
  await Promise.all(Array.from({ length: 60 }, write));
  const keys: string[] = [];
  let after: string | null = "";
  let pages = 0;
  while (after !== null) {
    const page = await listPage(server, token, RUNS, `limit=7&after=${after}`);
    expect(page.documents.length).toBeLessThanOrEqual(7);
    keys.push(...page.documents.map(({ doc_key }) => doc_key));
    after = page.next;
    pages++;
  }
  expect(keys).toEqual([...new Set(keys)].sort());
  expect(keys).toHaveLength(50);
  expect(pages).toBe(8);
  const exact = await listPage(server, token, RUNS, "limit=50");
  expect([exact.documents.length, exact.next]).toEqual([50, null]);
});

test("bounds a page in bytes, with at least one document", async () => {
  const token = await server.token({ org_id: "large" });
  const payload = { text: "x".repeat(3 << 20) };
  for (let i = 0; i < 3; i++)
    await server.write({ key: `run:large-${i}`, version: 1, org: "large", payload });
  const first = await listPage(server, token, RUNS);
  expect(first.documents).toHaveLength(2);
  const second = await listPage(server, token, RUNS, `after=${first.next}`);
  expect([second.documents.length, second.next]).toEqual([1, null]);
  await server.write({
    key: "run:large-0",
    version: 2,
    org: "large",
    payload: { text: "x".repeat(9 << 20) },
  });
  expect((await listPage(server, token, RUNS)).documents).toHaveLength(1);
});

test("accepts a limit from 1 to 1000, as a whole number", async () => {
  const token = await server.token();
  for (const limit of ["0", "1001", "-1", "1.5", "all", ""]) {
    const response = await server.request(`/sync/v1/list/${RUNS}?limit=${limit}`, token);
    expect([limit, response.status, await response.json()]).toMatchObject([
      limit,
      400,
      { error: { code: "invalid_request", field: "limit" } },
    ]);
  }
});

test("a list is one snapshot: its cursor matches its documents under concurrent writes", async () => {
  const org = "snapshot";
  const token = await server.token({ org_id: org });
  let writing = true;
  const writer = (async () => {
    for (let version = 1; writing; version++) {
      // Both in one commit: no list may show one of them without the other.
      await Promise.all(
        ["a", "b"].map((id) => server.write({ key: `run:${org}-${id}`, version, org, payload: { version } })),
      );
    }
  })();
  const before = new Map<string, bigint>();
  for (let i = 0; i < 40; i++) {
    const { documents, cursor } = await listPage(server, token, RUNS);
    const [newest] = await database.database.query<{ a: bigint; b: bigint }>({
      text: `SELECT max(doc_version) FILTER (WHERE doc_key = $2) AS a, max(doc_version) FILTER (WHERE doc_key = $3) AS b
        FROM runtime.sync_stream_events WHERE topic = $1 AND watermark <= $4`,
      values: [RUNS, `run:${org}-a`, `run:${org}-b`, watermarkOf(cursor)],
    });
    const listed = new Map(documents.map(({ doc_key, doc_version }) => [doc_key, BigInt(doc_version)]));
    expect(listed.get(`run:${org}-a`)).toBe(newest!.a ?? undefined);
    expect(listed.get(`run:${org}-b`)).toBe(newest!.b ?? undefined);
    before.set(String(i), watermarkOf(cursor));
  }
  writing = false;
  await writer;
  expect(new Set(before.values()).size).toBeGreaterThan(1);
});
