import { execFile } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { defineApp, runSummaries } from "@khala/server";
import { scripted } from "@khala/server/engines";
import { expect, test } from "vitest";
import { startTestServer } from "./test_server.ts";

const app = defineApp({ models: [runSummaries], engine: scripted() });

test("each server has its own database, and accepts the tokens it issues", async () => {
  await using one = await startTestServer(app);
  await using other = await startTestServer(app);
  const append = (url: string, token: string) =>
    fetch(`${url}/runtime/v1/runs/r1/events`, {
      method: "POST",
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      body: JSON.stringify({
        expected_seq: "0",
        events: [{ event_id: "e1", type: "run.started", data: { title: "Hi" } }],
      }),
    });
  expect((await append(one.url, await one.token())).status).toBe(201);
  expect((await append(other.url, await other.token({ sub: "ben" }))).status).toBe(201);
  const list = `${one.url}/sync/v1/list/${runSummaries.topic}`;
  const headers = { authorization: `Bearer ${await one.token({ org: "other" })}` };
  await expect.poll(async () => (await fetch(list, { headers })).json()).toMatchObject({ documents: [] });
});

test("a wrong setting is refused, and the next server starts", async () => {
  const wrong = startTestServer(app, { settings: { KHALA_DATABASE_POOL: "many" } });
  await expect(wrong).rejects.toThrow("KHALA_DATABASE_POOL");
  await using server = await startTestServer(app);
  expect((await fetch(`${server.url}/readyz`)).status).toBe(200);
});

test("a program ends while PostgreSQL runs, and leaves neither it nor its folder", async () => {
  const folder = await mkdtemp(join(tmpdir(), "khala-kit-"));
  const program = `
    const { startTestServer } = await import("@khala/testing");
    await (await startTestServer({})).stop();
    console.log("stopped");`;
  const args = ["--conditions=khala-source", "--input-type=module", "-e", program];
  const options = { cwd: import.meta.dirname, env: { ...process.env, TMPDIR: folder } };
  const { stdout } = await promisify(execFile)(process.execPath, args, options);
  expect(stdout).toBe("stopped\n");
  await expect.poll(() => readdir(folder), { timeout: 30_000 }).toEqual([]);
  await rm(folder, { recursive: true });
});
