import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { testContext } from "@khala/test-support/kit/context";
import { afterEach, describe, expect, test } from "vitest";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import type { DependencyState } from "./health.ts";
import { openWorkerHealthServer, type WorkerHealthServerOptions } from "./worker_health_server.ts";

const HOST = "127.0.0.1";
const opened: Service[] = [];
afterEach(async () => {
  for (const each of opened.splice(0)) await each.stop();
});

async function open(options: Partial<WorkerHealthServerOptions> = {}, context?: Context) {
  const server = await openWorkerHealthServer(context ?? (await testContext()), {
    host: HOST,
    port: 0,
    setting: "KHALA_WORKER_PORT",
    health: async () => ({ blackboard: { state: "ok" } }),
    ...options,
  });
  opened.push(server);
  return server;
}

test("answers as a server does: liveness, readiness, and metrics as Prometheus text", async () => {
  const context = await testContext();
  context.telemetry.meter.createCounter("things_total").add(3);
  const { url } = await open({}, context);
  expect(url).toMatch(/^http:\/\/127\.0\.0\.1:[1-9]\d*$/);
  const alive = await fetch(`${url}/healthz`);
  expect([alive.status, await alive.json()]).toEqual([200, { status: "ok" }]);
  const ready = await fetch(`${url}/readyz?probe=1`);
  expect([ready.status, await ready.json()]).toEqual([
    200,
    { status: "ok", dependencies: { blackboard: { state: "ok" } } },
  ]);
  const metrics = await fetch(`${url}/metrics`);
  expect(metrics.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
  expect(await metrics.text()).toMatch(/^things_total 3/m);
  const head = await fetch(`${url}/metrics`, { method: "HEAD" });
  expect([head.status, await head.text()]).toEqual([200, ""]);
});

test("is not ready while a dependency is unavailable, and names it", async () => {
  const board: DependencyState = { state: "unavailable", message: "No broker answers." };
  const { url } = await open({ health: async () => ({ blackboard: board }) });
  const answer = await fetch(`${url}/readyz`);
  expect([answer.status, await answer.json()]).toEqual([
    503,
    { status: "unavailable", dependencies: { blackboard: board } },
  ]);
});

test("answers no other route or method", async () => {
  const { url } = await open();
  for (const [path, method] of [
    ["/", "GET"],
    ["/metrics/", "GET"],
    ["/constructor", "GET"],
    ["/healthz", "POST"],
    ["/blackboard/v1/agents", "GET"],
  ] as const) {
    const answer = await fetch(url + path, { method });
    const error = { code: "not_found", message: `There is no route ${method} ${path}.` };
    expect([answer.status, await answer.json()]).toEqual([404, { error }]);
  }
});

test("reports metrics that cannot be read as an error, and logs the details", async () => {
  const warnings: string[] = [];
  const context = await testContext({ onWarning: (line) => warnings.push(line) });
  context.telemetry.meter.createObservableGauge("broken").addCallback(() => {
    throw new Error("cannot look");
  });
  const { url } = await open({}, context);
  const answer = await fetch(`${url}/metrics`);
  expect(answer.status).toBe(500);
  const body = await answer.text();
  expect(JSON.parse(body)).toMatchObject({ error: { code: "internal" } });
  expect(body).not.toContain("cannot look");
  expect(warnings.join("")).toContain("Some metrics could not be read.");
});

test("names a port in use and its setting", async () => {
  const other = createServer().listen(0, HOST);
  await once(other, "listening");
  const { port } = other.address() as { port: number };
  await expect(open({ port })).rejects.toThrow(
    `Port ${port} on ${HOST} is in use. Stop the process that listens there, or set KHALA_WORKER_PORT`,
  );
  other.close();
});

describe("blocked requests", () => {
  const dial = (url: string) => connect({ host: HOST, port: Number(new URL(url).port) });

  test("closes a request that does not end", async () => {
    const { url } = await open({ requestMs: 1_000 });
    const socket = dial(url);
    socket.write("GET /healthz HTTP/1.1\r\nHost: ");
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 408 /);
  });

  test("stop closes idle connections and pending requests; then nothing listens", async () => {
    const asked = Promise.withResolvers<void>();
    const { url, stop } = await open({
      health() {
        asked.resolve();
        return new Promise(() => {});
      },
    });
    const kept = dial(url);
    kept.write("GET /healthz HTTP/1.1\r\nHost: worker\r\n\r\n");
    await once(kept, "data");
    const gone = once(kept.resume(), "close");
    const waits = expect(fetch(`${url}/readyz`)).rejects.toThrow();
    await asked.promise;
    await stop();
    await Promise.all([gone, waits]);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
  });
});
