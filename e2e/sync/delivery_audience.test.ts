import { RawClient, until } from "@khala/test-support/clients/clients";
import { delivered, followRuns } from "@khala/test-support/clients/followers";
import { listPage } from "@khala/test-support/clients/lists";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
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

let orgs = 0;
const newOrg = () => `org-${++orgs}`;

const docStatus = async (token: string, key: string) =>
  (await server.request(`/sync/v1/doc/${key}`, token)).status;

const seen = (raw: RawClient) =>
  raw.updates.map(({ doc_key, op, doc_version }) => `${op} ${doc_key} ${doc_version}`);

describe("an audience", () => {
  test("that is named sees the run; the rest of the org sees nothing of it", async () => {
    const org = newOrg();
    await using ann = await followRuns(server, org, "ann");
    await using bob = await followRuns(server, org, "bob");
    await appendToRun(server, ann.token, `run-${org}`, { type: "run.started", data: { audience: ["ann"] } });
    await until("the update", () => ann.updates.length, { on: ann });
    await delivered(server, bob);
    expect(bob.frames).toEqual([]);
    expect(await docStatus(ann.token, `run:run-${org}`)).toBe(200);
    expect(await docStatus(bob.token, `run:run-${org}`)).toBe(404);
    expect((await listPage(server, ann.token, RUNS)).documents).toHaveLength(1);
    expect((await listPage(server, bob.token, RUNS)).documents).toHaveLength(0);
  });

  test("that is narrowed: those who lose the run get a tombstone, the others an update, live and in a replay", async () => {
    const org = newOrg();
    const key = `run:run-${org}`;
    await using ann = await followRuns(server, org, "ann");
    await using bob = await followRuns(server, org, "bob");
    await using zoe = await followRuns(server, org, "zoe");
    const everyone = [ann, bob, zoe];
    await appendToRun(server, ann.token, `run-${org}`, { type: "run.started" });
    for (const client of everyone) await until("the run", () => client.updates.length === 1, { on: client });
    const { cursor } = await listPage(server, zoe.token, RUNS);
    await appendToRun(server, ann.token, `run-${org}`, {
      type: "run.shared",
      data: { audience: ["ann", "bob"] },
    });
    for (const client of everyone)
      await until("the change", () => client.updates.length === 2, { on: client });
    await delivered(server, ...everyone);
    expect(seen(ann)).toEqual([`upsert ${key} 1`, `upsert ${key} 2`]);
    expect(seen(bob)).toEqual([`upsert ${key} 1`, `upsert ${key} 2`]);
    expect(seen(zoe)).toEqual([`upsert ${key} 1`, `delete ${key} 2`]);
    expect(zoe.updates[1]).not.toHaveProperty("payload");
    expect(await docStatus(zoe.token, key)).toBe(404);

    await using later = await RawClient.connect(server.socketUrl, { token: zoe.token });
    await later.join();
    await later.subscribe(RUNS, { [RUNS]: cursor });
    await later.frame("the replay", ({ update_batch }) => update_batch?.replay_complete);
    expect(seen(later)).toEqual([`delete ${key} 2`]);

    await appendToRun(server, ann.token, `run-${org}`, { type: "run.step", data: { name: "hidden" } });
    await until("the step", () => ann.updates.length === 3, { on: ann });
    await delivered(server, zoe, later);
    expect(zoe.updates).toHaveLength(2);
    expect(later.updates).toHaveLength(1);
  });

  test("that changes: those who gain the run get it, and those who lose it a tombstone", async () => {
    const org = newOrg();
    const key = `run:run-${org}`;
    await using ann = await followRuns(server, org, "ann");
    await using bob = await followRuns(server, org, "bob");
    await using zoe = await followRuns(server, org, "zoe");
    await appendToRun(server, ann.token, `run-${org}`, { type: "run.started", data: { audience: ["ann"] } });
    await appendToRun(server, ann.token, `run-${org}`, { type: "run.shared", data: { audience: ["bob"] } });
    await appendToRun(server, ann.token, `run-${org}`, { type: "run.shared", data: { audience: [] } });
    await until("the run", () => zoe.updates.length === 1, { on: zoe });
    await delivered(server, ann, bob, zoe);
    expect(seen(ann)).toEqual([`upsert ${key} 1`, `delete ${key} 2`, `upsert ${key} 3`]);
    expect(seen(bob)).toEqual([`upsert ${key} 2`, `upsert ${key} 3`]);
    expect(seen(zoe)).toEqual([`upsert ${key} 3`]);
  });

  test("of a deleted run gets its tombstone, and nobody else does", async () => {
    const org = newOrg();
    await using ann = await followRuns(server, org, "ann");
    await using bob = await followRuns(server, org, "bob");
    await appendToRun(
      server,
      ann.token,
      `run-${org}`,
      { type: "run.started", data: { audience: ["ann"] } },
      { type: "run.deleted" },
    );
    await until("the tombstone", () => ann.updates.some(({ op }) => op === "delete"), { on: ann });
    await delivered(server, bob);
    expect(bob.frames).toEqual([]);
    expect(await docStatus(ann.token, `run:run-${org}`)).toBe(404);
  });

  test("of a notification is the owner of its run", async () => {
    const org = newOrg();
    const [ann, bob] = await Promise.all(["ann", "bob"].map((sub) => server.token({ org_id: org, sub })));
    await appendToRun(
      server,
      ann!,
      `run-${org}`,
      { type: "run.started" },
      { type: "run.failed", data: { error: "no disk" } },
    );
    const found = await until(
      "the notification",
      async () => (await listPage(server, ann!, NOTIFICATIONS)).documents[0],
    );
    expect(found.payload).toMatchObject({ kind: "run.failed" });
    expect((await listPage(server, bob!, NOTIFICATIONS)).documents).toEqual([]);
  });
});
