import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { pino } from "pino";
import { expect, test, vi } from "vitest";
import { defineApp } from "../../app.ts";
import { runs } from "../../events/streams.ts";
import { defineModel } from "../../sync/model.ts";
import { runSummaries } from "../../sync/models/runtime.ts";
import { readConfig } from "../config.ts";
import { createKhala } from "../khala.ts";
import { reproject, rotateEpoch, trimNow } from "./operations.ts";

const app = defineApp({ models: [runSummaries] });
const { topic } = runSummaries;

/** A server on a database, until the end of the test. */
async function server(databaseUrl: string) {
  const khala = await createKhala(app, {
    log: pino({ level: "silent" }),
    config: readConfig({
      DATABASE_URL: databaseUrl,
      KHALA_PORT: "0",
      KHALA_POLL_MS: "20",
      KHALA_AUTH_SECRETS: `k1:${Buffer.alloc(32, 7).toString("base64")}`,
    }),
  });
  return {
    khala,
    append: (streamId: string, name: string) =>
      khala.authority.append({
        stream: runs,
        streamId,
        events: [{ event_id: crypto.randomUUID(), type: "run.step", data: { name } }],
        org: "acme",
        actor: "ada",
      }),
    [Symbol.asyncDispose]: () => khala.stop(),
  };
}

test("rebuilds a model beside a running server, which sends its clients the changes and continues", async () => {
  await using own = await testDatabase();
  await using here = await server(own.url);
  await here.append("r1", "a");
  await here.append("r2", "a");
  const documents = () =>
    own.database.query<{ key: string; version: bigint; steps: string }>({
      text: `SELECT doc_key AS key, doc_version AS version, convert_from(payload, 'UTF8')::json->>'steps' AS steps
        FROM runtime.sync_run_summaries ORDER BY doc_key`,
    });
  await vi.waitFor(async () => expect(await documents()).toHaveLength(2), { timeout: 30_000 });
  // A document that went wrong: the log knows better.
  await own.database.query({
    text: `UPDATE runtime.sync_run_summaries SET payload = '{"steps":9}', payload_hash = sha256('{"steps":9}')
      WHERE doc_key = 'run:r1'`,
  });
  const feed = await here.khala.sync.hub.feed(topic);
  const phases = new Set<string>();
  const done = await reproject({
    databaseUrl: own.url,
    app,
    topic,
    onProgress: ({ phase }) => phases.add(phase),
  });
  expect(done).toMatchObject({ topic, documents: 2n, differing: 1n });
  expect([...phases]).toEqual(["comparing"]);
  await patiently(() => expect(feed.head).toBe(3n));
  await here.append("r1", "b");
  await patiently(async () =>
    expect(await documents()).toEqual([
      { key: "run:r1", version: 3n, steps: "2" },
      { key: "run:r2", version: 1n, steps: "1" },
    ]),
  );
});

test("trims the journals at once, and reports the rows removed from each", async () => {
  await using own = await testDatabase();
  await using here = await server(own.url);
  await here.append("r1", "a");
  await here.append("r1", "b");
  await vi.waitFor(async () => expect((await here.khala.sync.hub.feed(topic)).head).toBe(2n), {
    timeout: 30_000,
  });
  const removed: number[] = [];
  const onProgress = (progress: { removed: number }) => removed.push(progress.removed);
  expect(await trimNow({ databaseUrl: own.url, app, keepMs: 3_600_000, onProgress })).toEqual(
    new Map([[topic, 0]]),
  );
  expect(await trimNow({ databaseUrl: own.url, app, keepMs: -1_000, onProgress })).toEqual(
    new Map([[topic, 2]]),
  );
  expect(removed).toEqual([2]);
});

test("rotates the epoch, and running servers switch to it", async () => {
  await using own = await testDatabase();
  await using here = await server(own.url);
  const feed = await here.khala.sync.hub.feed(topic);
  const before = feed.epoch;
  const epoch = await rotateEpoch({ databaseUrl: own.url });
  expect(epoch).not.toBe(before);
  await patiently(() => expect(feed.epoch).toBe(epoch));
});

test("refuses an unknown topic with the app's topics", async () => {
  const options = { databaseUrl: "postgres://127.0.0.1:1/none", app, topic: "app.nothing" };
  await expect(reproject(options)).rejects.toThrow(
    'There is no topic "app.nothing". Topics of this app: runtime.run_summaries.',
  );
});

test("reports a database that no server has started on", async () => {
  await using own = await testDatabase({ empty: true });
  for (const operation of [
    () => reproject({ databaseUrl: own.url, app, topic }),
    () => trimNow({ databaseUrl: own.url, app, keepMs: 0 }),
    () => rotateEpoch({ databaseUrl: own.url }),
  ])
    await expect(operation()).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("Run `khala migrate`"),
    });
});

test("reports a model that the database does not have yet", async () => {
  await using own = await testDatabase();
  const other = defineApp({
    models: [defineModel({ topic: "app.new", prefix: "new", streams: [runs], project: (before) => before })],
  });
  await expect(reproject({ databaseUrl: own.url, app: other, topic: "app.new" })).rejects.toMatchObject({
    code: "not_found",
    message: expect.stringContaining("Start a server with the model once"),
  });
});
