import { patiently } from "@khala/test-support/kit/patiently";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import { pino } from "pino";
import { expect, test, vi } from "vitest";
import { defineApp } from "../../app.ts";
import { runs } from "../../events/streams.ts";
import { runSummaries } from "../../sync/models/runtime.ts";
import { readConfig } from "../config.ts";
import { createKhala } from "../khala.ts";
import { parity, parityLines } from "./operations.ts";

const app = defineApp({ models: [runSummaries] });
const { topic } = runSummaries;

test("keeps the Convex mirror equal, and parity reports so", async () => {
  await using own = await testDatabase();
  await using convex = await startConvexStandIn({ secret: "s3cret" });
  await using stack = new AsyncDisposableStack();
  const khala = await createKhala(app, {
    log: pino({ level: "silent" }),
    config: readConfig({
      DATABASE_URL: own.url,
      KHALA_PORT: "0",
      KHALA_POLL_MS: "20",
      KHALA_AUTH_SECRETS: `k1:${Buffer.alloc(32, 7).toString("base64")}`,
      KHALA_MIRROR: "convex",
      CONVEX_URL: convex.url,
      CONVEX_SECRET: "s3cret",
    }),
  });
  stack.defer(() => khala.stop());
  for (const streamId of ["r1", "r2"])
    await khala.authority.append({
      stream: runs,
      streamId,
      events: [{ event_id: crypto.randomUUID(), type: "run.step", data: { name: "a" } }],
      org: "acme",
      actor: "ada",
    });
  await vi.waitFor(() => expect(convex.topic(topic).size).toBe(2), { timeout: 30_000 });
  const settings = {
    url: convex.url,
    mutation: "khala:applyUpdates",
    query: "khala:versions",
    secret: "s3cret",
  };
  const compare = () => parity({ databaseUrl: own.url, app, convex: settings });
  await patiently(async () =>
    expect(parityLines(await compare())).toEqual([
      `${topic}: 2 documents, 2 equal, 0 differing, 0 missing, 0 extra, 0 behind; no lag`,
    ]),
  );
  convex.topic(topic).delete("acme run:r1");
  const report = await compare();
  expect(report).toMatchObject({ equal: false, topics: [{ missing: { count: 1 } }] });
  expect(parityLines(report)[1]).toMatch(
    /^ {2}missing {3}acme run:r1 {2}ours: version 1, hash [0-9a-f]{12} {2}theirs: none$/,
  );
});
