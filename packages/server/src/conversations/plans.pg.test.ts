import { testContext } from "@khala/test-support/kit/context";
import { testViewer } from "@khala/test-support/kit/viewer";
import { readsOf, withoutStatistics } from "@khala/test-support/postgres/plans";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Database, Statement } from "../database/database.ts";
import { openAnnouncer } from "./announce.ts";
import { listOfOrg, listOwn } from "./listing.ts";
import { type Log, StreamGone } from "./log/log.ts";
import { openBranches } from "./messages/branches.ts";
import { resolveFork } from "./messages/fork.ts";
import { openMessageStore } from "./messages/message_store.ts";
import { insertQuestion } from "./messages/question.ts";
import { openParticipants } from "./people/participants.ts";
import { openQueue } from "./queue/queue.ts";
import { openLeases } from "./runs/leases.ts";
import { failed } from "./runs/outcome.ts";
import { openStore } from "./store.ts";
import { findCall, isAsked, storeDecision } from "./waiting/awaited_calls.ts";

/** Enough that reading all of them would show. */
const MANY = 20_000;

let shared: TestDatabase;
beforeEach(async () => {
  shared = await testDatabase();
  const { query } = shared.database;
  await withoutStatistics(shared.database);
  await query({
    text: `INSERT INTO runtime.conversations (conv_id, org_id, log_name, owner)
      SELECT 'c' || i, 'acme', 'chat:c' || i, 'ada' FROM generate_series(1, ${MANY}) i`,
  });
  // One conversation has very many runs, most of the others one.
  await query({
    text: `INSERT INTO runtime.conversation_runs (run_id, conv_id, org_id, subject, sender, status, idempotency_key, message_id)
      SELECT 'r' || i, CASE WHEN i % 2 = 0 THEN 'c1' ELSE 'c' || i END, 'acme', 'ada', 'ada', 'finished', 'k' || i, 'm' || i
      FROM generate_series(1, ${MANY}) i`,
  });
  // It also has very many messages, one after the other.
  await query({
    text: `INSERT INTO runtime.messages (org_id, conv_id, message_id, parent_id, role, run_id, parts, status)
      SELECT 'acme', 'c1', 'm' || i, 'm' || (i - 1), 'user', 'r' || i, '[{"text":"hi"}]', 'done'
      FROM generate_series(1, ${MANY}) i`,
  });
  await query({ text: `UPDATE runtime.conversations SET leaf_id = 'm${MANY}' WHERE conv_id = 'c1'` });
  await query({
    text: `INSERT INTO runtime.awaited_calls (org_id, conv_id, run_id, tool_call_id, message_id, tool, waits_for, state)
      SELECT 'acme', 'c1', 'r' || i, 't', 'm' || i, 'pay', 'approval', CASE WHEN i % 2 = 0 THEN 'pending' ELSE 'approved' END
      FROM generate_series(1, ${MANY}) i`,
  });
  await query({
    text: `INSERT INTO runtime.participants (org_id, conv_id, subject, role)
      SELECT 'acme', 'c' || i, 's' || (i % 100), 'viewer' FROM generate_series(1, ${MANY}) i`,
  });
});
afterEach(() => shared[Symbol.asyncDispose]());

/** Records every statement. */
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
      interactive: (fn) => database.interactive((tx) => fn(recorded(tx))),
    },
  };
}

const caller = testViewer();
const c1 = { org: "acme", convId: "c1" };
const page = { messages: 10, bytes: 1_000_000 };
const content = { message: "hi", messageId: "m", contentHash: "h" };
const run = { caller, convId: "c1", runId: "new", ...content, reserve() {}, async storeBegun() {} };
const withoutStreams = {
  open: () => Promise.reject(new StreamGone("There are no streams here.")),
} as unknown as Log;
const options = { holder: "me", leaseMs: 60_000, queueLimit: 10, newId: () => "suffix" };

test.each(["without statistics", "with statistics from when nothing ran"])(
  "every statement finds its rows by an index, %s",
  async (how) => {
    if (how !== "without statistics") await shared.database.query({ text: "VACUUM ANALYZE" });
    const { database, statements } = recording(shared.database);
    const store = openStore(database, options);
    const leases = openLeases(database, options);
    const conversation = await store.check(caller, "conversation.read", "c1");
    const opened = { generation: conversation.generation, cursor: "e.0-0" };
    const more = { key: "k", policy: "interrupt", opened, trace: undefined } as const;
    await store.ensure(caller, "conversation.write", "new");
    const admission = await store.admit({ ...run, ...more });
    expect(admission.kind).toBe("claimed");
    const held = { ...c1, runId: "new", fence: 1n };
    await leases.started(held, "e.0-0", { epoch: "e", seq: 2n, time: 0 });
    expect((await store.admit({ ...run, ...more, runId: "next", key: "other" })).kind).toBe("queued");
    await store.current(conversation);
    await store.run(conversation);
    await store.run(conversation, "new");
    const announcer = openAnnouncer(await testContext(), withoutStreams);
    const queue = openQueue(database, announcer);
    await store.admit({ ...run, ...more, runId: "last", key: "last" });
    await queue.edit(caller, conversation, "last", { message: "x" });
    expect((await queue.cancel(conversation, "last")).queued).toHaveLength(1);
    const participants = openParticipants(database, announcer, () => {});
    await participants.put(conversation, "bob", "viewer");
    await participants.remove(conversation, "bob");
    await store.requestStop(conversation, "stopped");
    await leases.renew([held]);
    await leases.finish(held, failed("timeout", "late"), { next: false });
    await leases.queuedConversations(50, ["full"]);
    await leases.claimNext(c1);
    await leases.releaseAll();
    await leases.claimExpired(50);
    await leases.claimExpired(1, c1);
    await leases.startFailed({ ...c1, runId: "next", fence: 3n });
    await leases.release({ ...c1, runId: "next", fence: 3n });
    await leases.isDeleted(conversation);
    await leases.markReported({ org: "acme", runId: "new" });
    const messages = openMessageStore(database);
    expect((await messages.tail(conversation, page))!.rows).toHaveLength(10);
    expect((await messages.before(c1, "m500", page)).messages).toHaveLength(10);
    const writing = { ...c1, runId: "next", fence: 3n };
    const begun = { message_id: "begun", role: "assistant", parts: [], status: "streaming" };
    await messages.save(writing, [begun], { epoch: "e", seq: 3n, time: 0 });
    // The question was there before the run, so it is still there.
    expect(await messages.ofRun(writing)).toHaveLength(2);
    await messages.cutBack(writing, []);
    const pay = { message_id: "m1", tool_call_id: "t", tool: "pay", waits_for: "approval" };
    await leases.park(writing, [pay]);
    await leases.wake(writing);
    await findCall(database, c1, "t");
    await isAsked(database, writing, "t");
    const decided = { state: "approved", contentHash: "h", cursor: "e.0-0", decidedBy: "ada" } as const;
    await storeDecision(database, writing, "t", decided);
    expect(await messages.has(c1, "m500")).toBe(true);
    await messages.question({ ...c1, runId: "next", messageId: "m500" });
    const branches = openBranches({ database, log: withoutStreams, messages });
    await shared.database.query({
      text: "UPDATE runtime.conversations SET run_id = NULL, queued = 0 WHERE conv_id = 'c1'",
    });
    await shared.database.query({
      text: `INSERT INTO runtime.messages (org_id, conv_id, message_id, parent_id, role, run_id, parts, status)
        VALUES ('acme', 'c1', 'other', 'm${MANY - 5}', 'user', 'r', '[{"text":"hi"}]', 'done')`,
    });
    await expect(branches.choose(conversation, "other")).rejects.toThrow();
    await database.interactive(async (tx) => {
      const sent = { message: "hi", messageId: "m500" };
      for (const resent of ["regenerate", "edit", "either"] as const)
        await resolveFork(tx, c1, { resent, answerId: "m499" }, sent, () => "fresh");
      await resolveFork(tx, c1, { regenerate: "m500" }, sent, () => "fresh");
      await resolveFork(tx, c1, { edit: "m500" }, sent, () => "fresh");
      await insertQuestion(tx, { ...c1, ...sent, runId: "r1", sender: "ada", regenerate: "m500" });
    });
    await listOwn(database, caller, { after: "1000 c1", limit: 10 });
    await listOwn(database, caller, { after: "", limit: 10, status: ["failed", "running"] });
    expect((await listOwn(database, caller, { after: "", limit: 10, q: "hi" })).conversations).toHaveLength(
      1,
    );
    await listOfOrg(database, "acme", { after: "", limit: 10 });
    const planned = [...statements];
    // Reads most of the runs, because this conversation has most of them.
    await store.endRemoval(conversation, (await store.beginRemoval(conversation))!.fence);
    for (const { name = "", text } of statements) {
      // Waiting runs, expired leases, and this server's leases: of all orgs.
      if (/^conversation_(waiting|seize)$/.test(name) || text.includes("holder = $1 AND")) continue;
      expect.soft(text, "a statement without the org").toMatch(/org_id = (\$\d|mine)|\(org_id/);
    }
    expect(planned.length).toBeGreaterThan(20);
    for (const statement of planned) {
      for (const read of await readsOf(shared.database, statement)) {
        const newest =
          /^(conversation_newest_run|conversations_(?:of|with)_\w+)$/.test(statement.name ?? "") &&
          read.startsWith("conversation_runs_newest: (");
        // All waiting runs are read, and that index has only those.
        const waiting = statement.name === "conversation_waiting" && read === "conversations_waiting: all";
        const found =
          /messages_words: |_own_status: \(|_pkey: \(|_subject: \(|AND \(run_id = |_runs_key: \(|_queue: \(|_leases: \(|_own: \(|_org: \(|_of_run: \(|_children: \(.*parent_id/.test(
            read,
          ) ||
          newest ||
          waiting;
        expect.soft(found, `${statement.name} reads ${read}`).toBe(true);
      }
    }
  },
);
