import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { appendToRun, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";
import { ended, printed } from "./docs_programs.ts";

let database: TestDatabase;
let server: TestServer;
let token: string;
let folder: string;
beforeEach(async () => {
  database = await testDatabase();
  server = await startServer(database.url);
  token = await server.token({ sub: "dev", org_id: "demo" });
  folder = await mkdtemp(join(tmpdir(), "khala-examples-"));
});
afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

/** An example that runs in Node, until it is disposed of. */
function start(name: string, file: string) {
  const child: ChildProcess = spawn(
    process.execPath,
    ["--conditions=khala-source", join(ROOT, `examples/${name}/main.ts`), join(folder, file)],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...bareEnv(), KHALA_URL: server.url } },
  );
  return {
    prints: (wanted: RegExp) => printed(child, wanted),
    /** Ctrl-C, which it takes as the end. */
    async interrupt() {
      child.kill("SIGINT");
      return ended(child);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended(child);
    },
  };
}

const begin = (title: string) =>
  appendToRun(server, token, "first", { type: "run.started", data: { title } });

test("mobile_list shows the list live, and the stored list without a server", async () => {
  await begin("Feed the otters");
  await using phone = start("mobile_list", "phone.json");
  await phone.prints(/Up to date\.\n {2}Feed the otters \(running\)/);
  await appendToRun(server, token, "first", { type: "run.completed" });
  await phone.prints(/Feed the otters \(completed\)/);
  expect(await phone.interrupt()).toBe(0);

  await server[Symbol.asyncDispose]();
  await using again = start("mobile_list", "phone.json");
  await again.prints(/Offline.*\n {2}Feed the otters \(completed\)/);
  expect(await again.interrupt()).toBe(0);
});

test("desktop_status follows runs and workers, and shows their last state after a restart offline", async () => {
  await begin("Count the otters");
  await using desktop = start("desktop_status", "status.db");
  await desktop.prints(/Live\n {2}run Count the otters: running/);
  const registered = await server.request("/runtime/v1/workers/w1/events", token, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      events: [{ event_id: "e1", type: "worker.registered", data: { name: "Otto" } }],
    }),
  });
  expect(registered.status).toBe(201);
  await desktop.prints(/worker Otto: \w+\n {2}run Count the otters/);
  expect(await desktop.interrupt()).toBe(0);

  await server[Symbol.asyncDispose]();
  await using again = start("desktop_status", "status.db");
  await again.prints(
    /Not connected: the last known state\n {2}worker Otto: \w+\n {2}run Count the otters: running/,
  );
  expect(await again.interrupt()).toBe(0);
});
