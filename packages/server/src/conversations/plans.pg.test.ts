import { readsOf, withoutStatistics } from "@khala/testing/postgres/plans";
import { type TestDatabase, testDatabase } from "@khala/testing/postgres/test_database";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Database, Statement } from "../database/database.ts";
import { listOfOrg, listOwn } from "./listing.ts";
import { openLeases } from "./runs/leases.ts";
import { failed } from "./runs/outcome.ts";
import { openStore } from "./store.ts";

/** Enough that reading all of them would show. */
const MANY = 20_000;

let shared: TestDatabase;
beforeEach(async () => {
  shared = await testDatabase();
  const { query } = shared.database;
  await withoutStatistics(shared.database);
  await query({
    text: `INSERT INTO runtime.conversations (conv_id, org_id, owner)
      SELECT 'c' || i, 'acme', 'ada' FROM generate_series(1, ${MANY}) i`,
  });
  // One conversation has very many runs, most of the others one.
  await query({
    text: `INSERT INTO runtime.conversation_runs (run_id, conv_id, org_id, subject, status, idempotency_key, message_id)
      SELECT 'r' || i, CASE WHEN i % 2 = 0 THEN 'c1' ELSE 'c' || i END, 'acme', 'ada', 'finished', 'k' || i, 'm' || i
      FROM generate_series(1, ${MANY}) i`,
  });
});
afterEach(() => shared[Symbol.asyncDispose]());

/** Remembers every statement that goes through it. */
function recording(database: Database): { database: Database; statements: Statement[] } {
  const statements: Statement[] = [];
  const recorded = (inner: Pick<Database, "query">): Pick<Database, "query"> => ({
    query(statement) {
      statements.push(statement);
      return inner.query(statement);
    },
  });
  return {
    statements,
    database: {
      ...database,
      ...recorded(database),
      interactive: (fn, mode) => database.interactive((tx) => fn(recorded(tx)), mode),
    },
  };
}

const run = { convId: "c1", runId: "new", org: "acme", subject: "ada", message: "hi", messageId: "m" };
const options = { holder: "me", leaseMs: 60_000, queueLimit: 10 };

test.each(["without statistics", "with statistics from when nothing ran"])(
  "every statement finds its rows by an index, %s",
  async (how) => {
    if (how !== "without statistics") await shared.database.query({ text: "VACUUM ANALYZE" });
    const { database, statements } = recording(shared.database);
    const store = openStore(database, options);
    const leases = openLeases(database, options);
    const more = {
      key: "k",
      policy: "interrupt",
      cursor: "e.0-0",
      hasCapacity: true,
      trace: undefined,
    } as const;
    const admission = await store.admit({ ...run, ...more });
    expect(admission.kind).toBe("claimed");
    const held = { convId: "c1", runId: "new", fence: 1n };
    await leases.started(held, "e", "e.0-0");
    expect((await store.admit({ ...run, ...more, runId: "next", key: "other" })).kind).toBe("queued");
    await store.check(run, "c1");
    await store.running("c1");
    await store.newest("c1");
    await store.requestStop("c1", "stopped");
    await leases.renew([held]);
    await leases.finish(held, failed("timeout", "late"), { next: false });
    await leases.queuedConversations(50);
    await leases.claimNext("c1");
    await leases.releaseAll();
    await leases.claimExpired(50);
    await leases.claimExpired(1, "c1");
    await leases.startFailed({ convId: "c1", runId: "next", fence: 3n });
    await leases.release({ convId: "c1", runId: "next", fence: 3n });
    await listOwn(database, run, { after: "1000 c1", limit: 10 });
    await listOfOrg(database, "acme", { after: "", limit: 10 });
    expect(statements.length).toBeGreaterThan(20);
    for (const statement of statements) {
      for (const read of await readsOf(shared.database, statement)) {
        const newest =
          /^(conversation_newest_run|conversations_of_\w+)$/.test(statement.name ?? "") &&
          read.startsWith("conversation_runs_newest: (");
        // All that wait are looked for, and in that index nothing else is.
        const waiting = statement.name === "conversation_waiting" && read === "conversations_waiting: all";
        const found =
          /_pkey: \(|_runs_key: \(|_queue: \(|_leases: \(|_own: \(|_org: \(/.test(read) || newest || waiting;
        expect.soft(found, `${statement.name} reads ${read}`).toBe(true);
      }
    }
  },
);
