import { randomUUID } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { agent, createBoardWorker, defineApp, readConfig } from "@khala/server";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startKhala } from "@khala/test-support/processes/processes";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import app from "@khala/test-support/programs/board_app";
import { BACKENDS, backendSettings } from "@khala/test-support/servers/backends";
import { startBoard } from "@khala/test-support/servers/board_server";
import { ADA } from "@khala/test-support/servers/board_servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const FILE = join(ROOT, "packages/test-support/src/programs/board_app.ts");
const WATCHED = { KHALA_WORKER_PORT: "0" };
/** Where Node tells of every server that begins to listen. */
const LISTEN = "tracing:net.server.listen:asyncStart";
/** One task of the app's reviewer, as a scrape shows it. */
const REVIEWED = /^khala_board_tasks_total\{agent="reviewer",outcome="done",partition="\d+"\} 1\b/m;

let database: TestDatabase;
beforeAll(async () => {
  database = await testDatabase();
});
afterAll(() => database[Symbol.asyncDispose]());

/** A worker in this process; disposing of it stops it. */
async function startWorker(settings: Readonly<Record<string, string>>, agents = app.agents) {
  const config = readConfig({ DATABASE_URL: database.url, KHALA_LOG_LEVEL: "silent", ...settings });
  const worker = await createBoardWorker(defineApp({ models: [], agents }), { config });
  return { ...worker, [Symbol.asyncDispose]: () => worker.stop() };
}

async function readiness(url: string) {
  const answer = await fetch(`${url}/readyz`);
  const body = (await answer.json()) as { status: string; dependencies: Record<string, { state: string }> };
  return { code: answer.status, ...body };
}

async function scrape(url: string): Promise<string> {
  return (await fetch(`${url}/metrics`)).text();
}

/** How often this process begins to listen while something is done. */
async function listensDuring(work: () => Promise<void>): Promise<number> {
  let count = 0;
  const more = () => {
    count++;
  };
  subscribe(LISTEN, more);
  try {
    await work();
    return count;
  } finally {
    unsubscribe(LISTEN, more);
  }
}

describe.each(BACKENDS)("on %s", (backend) => {
  test("a worker process exposes metrics of its own work, until it stops", async () => {
    await using own = await testDatabase();
    const settings = await backendSettings(backend);
    const idle = { ...settings, KHALA_BOARD_AGENTS: "false" };
    await using server = await startBoard(own.url, { agents: app.agents }, idle);
    const env = { ...settings, ...WATCHED, DATABASE_URL: own.url };
    await using worker = await startKhala({ command: "worker", args: ["--app", FILE], env });
    const correlation_id = randomUUID();
    await server.publish({ type: "Draft", payload: {}, correlation_id });
    await server.correlation(correlation_id, "done");
    const text = await until("the task in a scrape", async () => {
      const now = await scrape(worker.url);
      return REVIEWED.test(now) && now;
    });
    expect(text).toMatch(/^khala_board_task_seconds_count\{agent="reviewer"/m);
    expect(text).toMatch(/^khala_board_breaker\{agent="reviewer"\} 0/m);
    expect(await scrape(server.url)).not.toContain('khala_board_tasks_total{agent="reviewer"');
    expect((await fetch(`${worker.url}/healthz`)).status).toBe(200);
    expect(await readiness(worker.url)).toMatchObject({
      code: 200,
      status: "ok",
      dependencies: {
        database: { state: "ok" },
        blackboard: { state: "ok", backend: backend.toLowerCase() },
      },
    });
    expect(worker.output()).toContain(`the agents are running; metrics at ${worker.url}/metrics, health at`);
    expect(worker.output()).not.toContain(own.url);
    expect(await worker.end("SIGTERM")).toBe(0);
    await expect(fetch(`${worker.url}/healthz`)).rejects.toThrow();
  });
});

test("a stopping worker that finishes its work is alive and can be scraped, but is not ready", async () => {
  const begun = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  const slow = agent("slow", {
    consumes: "Slow",
    async run() {
      begun.resolve();
      await release.promise;
    },
  });
  await using worker = await startWorker(WATCHED, [slow]);
  const url = worker.url!;
  await worker.blackboard.publish(ADA, [{ type: "Slow", payload: null }]);
  await begun.promise;
  expect((await readiness(url)).code).toBe(200);
  const stopped = worker.stop();
  expect(await readiness(url)).toMatchObject({ code: 503, status: "unavailable" });
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  expect(await scrape(url)).toMatch(/^khala_board_running\{agent="slow"\} 1/m);
  release.resolve();
  await stopped;
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

test("a worker without its database is alive and not ready, and is ready again with it", async () => {
  const { hostname, port } = new URL(database.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  await using worker = await startWorker({ ...WATCHED, DATABASE_URL: proxy.through(database.url) });
  const url = worker.url!;
  proxy.pause();
  expect(await readiness(url)).toMatchObject({
    code: 503,
    dependencies: { database: { state: "unavailable" } },
  });
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  proxy.resume();
  await until("ready again", async () => (await readiness(url)).code === 200);
});

test("nothing listens without the setting", async () => {
  const start = async (settings: Readonly<Record<string, string>>) => {
    await using worker = await startWorker(settings);
    expect(worker.url === undefined).toBe(settings !== WATCHED);
  };
  expect(await listensDuring(() => start({}))).toBe(0);
  expect(await listensDuring(() => start(WATCHED))).toBe(1);
});

test("a port in use is one clear error, before any task is claimed", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as { port: number };
  const env = { DATABASE_URL: database.url, KHALA_WORKER_PORT: String(port) };
  const starting = startKhala({ command: "worker", args: ["--app", FILE], env });
  await expect(starting).rejects.toThrow(
    new RegExp(`ended with 1 .*\\n.*Port ${port} on 127.0.0.1 is in use\\. .* set KHALA_WORKER_PORT .*\\n$`),
  );
  other.close();
});
