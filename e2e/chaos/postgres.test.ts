import { eventually } from "@khala/test-support/kit/eventually";
import { PostgresServer } from "@khala/test-support/postgres/server";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Chaos } from "./support/chaos.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 90_000 });

const RUNS = "runtime.run_summaries";
let postgres: PostgresServer;
let chaos: Chaos;

beforeEach(async () => {
  postgres = await PostgresServer.start();
  chaos = new Chaos(postgres, 13);
  await Promise.all([chaos.gateway(), chaos.gateway()]);
  await chaos.people();
});

afterEach(async () => {
  await chaos[Symbol.asyncDispose]();
  await postgres[Symbol.asyncDispose]();
});

test("a PostgreSQL that is stopped or crashes and returns loses nothing, and no cursor", async () => {
  chaos.startWriters();
  for (const end of ["stop", "crash"] as const) {
    await chaos.steps(100);
    await postgres[end]();
    await postgres.start();
  }
  await chaos.steps(100);
  await chaos.stopWriters();
  await chaos.agree();
  for (const witness of chaos.witnesses) expect(witness.stales).toEqual([]);
});

test("a failover to a complete standby loses nothing, and no client lists again", async () => {
  const standby = await postgres.addStandby();
  await standby.awaitCommits();
  chaos.startWriters();
  await chaos.steps(100);
  postgres.proxy.refuse();
  await postgres.crash();
  await standby.promote();
  postgres.proxy.resume();
  await chaos.steps(100);
  await chaos.stopWriters();
  await chaos.agree();
  for (const witness of chaos.witnesses) expect(witness.stales).toEqual([]);
});

test("servers that reach the standby before its promotion wait for it, and lose nothing", async () => {
  const standby = await postgres.addStandby();
  await standby.awaitCommits();
  chaos.startWriters();
  await chaos.steps(100);
  postgres.proxy.refuse();
  await postgres.crash();
  standby.reach();
  postgres.proxy.resume();
  // It answers, and is read-only: that is not ready.
  for (const url of chaos.urls()) {
    await eventually("the standby is asked", () => postgres.proxy.connections > 0);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
  }
  await standby.promote();
  await chaos.steps(100);
  await chaos.stopWriters();
  await chaos.agree();
  for (const witness of chaos.witnesses) expect(witness.stales).toEqual([]);
});

test.for([
  ["put back", "restore"],
  ["put back without leaving a mark", "rewind"],
] as const)(
  "after a backup is %s, every earlier cursor is stale, even when the counter has passed it again",
  async ([, restore]) => {
    chaos.startWriters();
    await chaos.steps(50);
    await chaos.stopWriters();
    const backup = await postgres.backUp();
    const away = chaos.witness("acme", "ann", { topics: [RUNS] }).start();
    await chaos.agree();
    chaos.startWriters();
    await chaos.steps(50);
    await chaos.stopWriters();
    await chaos.agree();
    await away.stop();
    const old = away.view(RUNS).cursor!;

    // Those who write do not wait until anybody has noticed.
    for (const writer of chaos.writers) writer.forget();
    chaos.startWriters();
    await postgres[restore](backup);
    await eventually("the counter has passed the old cursor", async () => {
      const text = "SELECT next_watermark AS head FROM runtime.sync_topic_sequences WHERE topic = $1";
      const rows = await postgres.database.query<{ head: bigint }>({ text, values: [RUNS] }).catch(() => []);
      return rows[0] !== undefined && rows[0].head > old.watermark + 50n;
    });
    await chaos.stopWriters();
    away.start();
    await chaos.agree({ lossless: false });
    for (const witness of chaos.witnesses) expect(witness.stales.length).toBeGreaterThan(0);
    const [{ topic, sent, floor }] = away.stales as [(typeof away.stales)[0]];
    expect({ topic, epoch: sent.epoch }).toEqual({ topic: RUNS, epoch: old.epoch });
    // A gateway that has not heard of it yet may have gone on with what it remembers from before.
    expect(sent.watermark).toBeGreaterThanOrEqual(old.watermark);
    expect(floor.epoch).not.toBe(old.epoch);
  },
);

test("detects a failover that lost the newest commits, even if no query failed, and continues", async () => {
  const standby = await postgres.addStandby();
  await standby.detach();
  for (let i = 0; i < 30; i++) for (const writer of chaos.writers) await writer.step();
  await chaos.agree();
  await standby.promote();
  postgres.proxy.cut();
  for (const writer of chaos.writers) writer.forget();
  await chaos.agree({ lossless: false });
  for (const writer of chaos.writers) await writer.step();
  await chaos.agree({ lossless: false });
  for (const witness of chaos.witnesses) expect(witness.stales.length).toBeGreaterThan(0);
});
