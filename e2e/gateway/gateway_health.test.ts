import type { TopicListJson } from "@khala/contracts/ops/v1";
import { defineModel, runSummaries, runs, workerSummaries } from "@khala/server";
import { RawClient, until } from "@khala/test-support/clients/clients";
import { listPage } from "@khala/test-support/clients/lists";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { appendToRun, RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

interface Readiness {
  readonly status: string;
  readonly dependencies: Record<string, { state: string; message?: string; stopped?: string[] }>;
}

async function readiness(server: TestServer): Promise<Readiness & { code: number }> {
  const response = await server.request("/readyz");
  return { code: response.status, ...((await response.json()) as Readiness) };
}

test("a healthy server is ready, and lists its dependencies", async () => {
  await using server = await startServer(database.url);
  expect((await server.request("/healthz")).status).toBe(200);
  expect(await readiness(server)).toMatchObject({
    code: 200,
    status: "ok",
    dependencies: {
      database: { state: "ok" },
      projections: { state: "ok" },
      delivery: { state: "ok" },
      auth: { state: "ok" },
    },
  });
});

test("sets aside and counts a stream that a projection cannot process, continues others, and resumes it when fixed", async () => {
  let broken = true;
  const fragile = defineModel<{ title: string }>({
    topic: "test.fragile",
    prefix: "fragile",
    streams: [runs],
    project(before, event) {
      const { title } = event.data as { title?: string };
      if (title === "poison" && broken) throw new Error("cannot take poison");
      return title ? { title } : before;
    },
  });
  const settings = { KHALA_PROJECTION_RETRY_MS: "20" };
  await using server = await startServer(database.url, {
    models: [runSummaries, workerSummaries, fragile],
    settings,
  });
  const token = await server.token({ org_id: "fragile" });
  const other = await server.token({ org_id: "sound" });
  await appendToRun(server, token, "fragile-1", { type: "run.started", data: { title: "poison" } });
  await appendToRun(server, token, "fragile-2", { type: "run.started", data: { title: "fine" } });
  const degraded = await until("degraded", async () => {
    const now = await readiness(server);
    return now.status === "degraded" && now;
  });
  expect(degraded.code).toBe(200);
  expect(degraded.dependencies.projections).toMatchObject({
    state: "degraded",
    failed: { "test.fragile": 1 },
  });
  // Everybody may ask, so it names no stream.
  expect(JSON.stringify(degraded)).not.toContain("fragile-1");
  expect(await server.metric("khala_sync_failed_streams", { topic: "test.fragile" })).toBe(1);
  await appendToRun(server, other, "fragile-1", { type: "run.started", data: { title: "fine" } });
  for (const each of [token, other])
    await until(
      "the other streams",
      async () => (await listPage(server, each, "test.fragile")).documents.length === 1,
    );
  await until("the other model", async () => (await listPage(server, token, RUNS)).documents.length === 2);
  const failedStreams = async (scopes: string[], org_id: string) => {
    const operator = await server.token({ org_id, scopes });
    return (await server.request("/ops/v1/failed-streams", operator)).json();
  };
  const found = {
    streams: [
      {
        topic: "test.fragile",
        org_id: "fragile",
        kind: "run",
        stream_id: "fragile-1",
        seq: "1",
        error: expect.stringMatching(/cannot take poison/),
      },
    ],
  };
  expect(await failedStreams(["ops"], "fragile")).toMatchObject(found);
  expect(await failedStreams(["platform"], "anywhere")).toMatchObject(found);
  expect(await failedStreams(["ops"], "sound")).toEqual({ streams: [] });
  const topics = await server.request("/ops/v1/topics", await server.token({ scopes: ["ops"] }));
  expect(((await topics.json()) as TopicListJson).topics).toContainEqual(
    expect.objectContaining({
      topic: "test.fragile",
      projection: expect.objectContaining({ state: "ok", failed: 1 }),
    }),
  );
  broken = false;
  await until(
    "the documents",
    async () => (await listPage(server, token, "test.fragile")).documents.length === 2,
  );
  await until("ready", async () => (await readiness(server)).status === "ok");
  expect(await failedStreams(["platform"], "anywhere")).toEqual({ streams: [] });
});

describe("while the database is unreachable", () => {
  test("is alive and not ready, answers with a retryable error, and recovers with the database", async () => {
    const { hostname, port } = new URL(database.url);
    await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    await using server = await startServer(proxy.through(database.url), {
      settings: { KHALA_POLL_MS: "50" },
    });
    const token = await server.token({ org_id: "away" });
    await using raw = await RawClient.connect(server.socketUrl, { token });
    await raw.join();
    await raw.subscribe(RUNS);
    proxy.refuse();
    const away = await until("not ready", async () => {
      const now = await readiness(server);
      return now.code === 503 && now;
    });
    expect(away).toMatchObject({
      status: "unavailable",
      dependencies: { database: { state: "unavailable" } },
    });
    expect((await server.request("/healthz")).status).toBe(200);
    const refused = await server.request(`/sync/v1/list/${RUNS}`, token);
    expect(refused.headers.get("retry-after")).toBe("1");
    expect([refused.status, await refused.json()]).toMatchObject([503, { error: { code: "unavailable" } }]);
    // Metrics that need no database are still there to be scraped.
    expect(await server.metric("khala_gateway_sockets")).toBe(1);
    expect(await raw.push("phoenix", "heartbeat")).toMatchObject({ status: "ok" });
    proxy.resume();
    await until("ready", async () => (await readiness(server)).status === "ok");
    await server.write({ key: "run:away", version: 1, org: "away", payload: {} });
    await until("an update on the socket that stayed", () => raw.updates.length, { on: raw });
  });

  test("is not ready when the database never answers, in bounded time", async () => {
    const { hostname, port } = new URL(database.url);
    await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    const clock = new JumpClock();
    const server = await startServer(proxy.through(database.url), { clock });
    proxy.pause();
    let answer: Awaited<ReturnType<typeof readiness>> | undefined;
    void readiness(server).then((now) => {
      answer = now;
    });
    const { code, status } = await until("an answer", () => {
      clock.jump(100);
      return answer;
    });
    expect({ code, status }).toEqual({ code: 503, status: "unavailable" });
    proxy.resume();
    await server[Symbol.asyncDispose]();
  });
});

test("reports every metric family that operators need, from the first scrape where possible", async () => {
  await using server = await startServer(database.url);
  const token = await server.token({ org_id: "metrics" });
  await using raw = await RawClient.connect(server.socketUrl, { token });
  await raw.join();
  await raw.subscribe(RUNS, { [RUNS]: { watermark: "0" } });
  await raw.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
  await appendToRun(server, token, "metrics", { type: "run.started" });
  await until("the update", () => raw.updates.length, { on: raw });
  const response = await server.request("/metrics");
  expect(response.headers.get("content-type")).toContain("text/plain");
  const text = await response.text();
  const families = new Map(
    [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name, type]),
  );
  expect(Object.fromEntries(families)).toMatchObject({
    khala_sync_topic_head: "gauge",
    khala_sync_topic_lag: "gauge",
    khala_sync_topic_stalled: "gauge",
    khala_sync_oldest_watermark: "gauge",
    khala_sync_journal_rows: "gauge",
    khala_sync_journal_bytes: "gauge",
    khala_sync_journal_oldest_age_seconds: "gauge",
    khala_sync_live_subscriptions: "gauge",
    khala_sync_projection_lag: "gauge",
    khala_sync_failed_streams: "gauge",
    khala_sync_appends_total: "counter",
    khala_sync_document_writes_total: "counter",
    khala_sync_write_failures_total: "counter",
    khala_sync_pushes_total: "counter",
    khala_sync_pushes_retried_total: "counter",
    khala_sync_pushes_dropped_total: "counter",
    khala_sync_resumes_total: "counter",
    khala_sync_stale_cursors_total: "counter",
    khala_sync_journal_reads_total: "counter",
    khala_sync_read_failures_total: "counter",
    khala_sync_retention_runs_total: "counter",
    khala_sync_replay_batch_seconds: "histogram",
    khala_sync_catch_up_seconds: "histogram",
    khala_sync_commit_to_push_seconds: "histogram",
    khala_gateway_sockets: "gauge",
    khala_gateway_waiting_bytes: "gauge",
    khala_gateway_connects_total: "counter",
    khala_gateway_closes_total: "counter",
    khala_gateway_denials_total: "counter",
    http_server_request_duration_seconds: "histogram",
  });
  expect(text).toMatch(
    /khala_sync_replay_batch_seconds_bucket\{[^}]*topic="runtime.run_summaries"[^}]*le="[^"]+"/,
  );
  for (const [, name] of text.matchAll(/^# TYPE (\S+)/gm)) expect(text).toContain(`# HELP ${name} `);
});
