import { testContext } from "@khala/test-support/kit/context";
import { testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Approvals, openApprovals } from "../blackboard/waiting/approvals.ts";
import { type Append, type Authority, openAuthority } from "../events/authority.ts";
import type { Context } from "../kit/context.ts";
import type { Service } from "../kit/service.ts";
import { startApprovalReports } from "./approvals.ts";

let own: TestDatabase;
let context: Context;
let authority: Authority;
let approvals: Approvals;
const running: Service[] = [];
beforeEach(async () => {
  own = await testDatabase();
  context = await testContext();
  authority = openAuthority(own.database, context);
  approvals = openApprovals(own.database, context, { wake() {} });
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((each) => each.stop()));
  await own[Symbol.asyncDispose]();
});

type Reporting = Pick<Authority, "append" | "find">;

/** A server that reports, with an authority of its own. */
function start(wrapped: Partial<Reporting> = {}): Service {
  const service = startApprovalReports(own.database, context, {
    authority: { append: authority.append, find: authority.find, ...wrapped },
    wakeups: { on() {}, onListening() {} },
    pollMs: 10,
  });
  running.push(service);
  return service;
}

type Visibility = ReturnType<typeof testArtifact>["visibility"];
const PRIVATE = { kind: "private", agents: ["payer"] } as unknown as Visibility;

/** Holds a task of an artifact, and resolves with the id of its approval. */
async function hold(more: { visibility?: Visibility; produced_by?: string } = {}): Promise<string> {
  const known = new Set((await approvals.list("acme")).map(({ id }) => id));
  await approvals.hold(testTask("payer", { ...testArtifact(context.newId()), ...more }));
  return (await approvals.list("acme")).find(({ id }) => !known.has(id))!.id!;
}
const decide = (id: string) => approvals.decide("acme", id, { approved: true }, "bob");

/** The events so far, and none under way. */
async function reported() {
  await until("every change is reported", async () => {
    return (await own.database.query({ text: "SELECT FROM runtime.approval_changes" })).length === 0;
  });
  return (await authority.read(0n, 100)).map(({ type, data, org }) => ({ type, data, org }));
}
const types = async () => (await reported()).map(({ type }) => type);

test("reports a task that waits, without its content, and its end", async () => {
  const id = await hold();
  start();
  const approval = { kind: "board", id, name: "payer", created_at: expect.any(String) };
  const waiting = { type: "approval.waiting", data: { approval }, org: "acme" };
  expect(await reported()).toEqual([waiting]);
  await decide(id);
  expect(await reported()).toEqual([waiting, { type: "approval.ended", data: { id }, org: "acme" }]);
});

test("a private task is for its publisher, and one that nobody can be named for is not reported", async () => {
  start();
  await hold({ visibility: PRIVATE, produced_by: "user:ada" });
  expect(await reported()).toMatchObject([{ data: { audience: ["ada"] } }]);
  for (const produced_by of ["agent:writer", "user:"]) await hold({ visibility: PRIVATE, produced_by });
  expect(await reported()).toHaveLength(1);
});

test("a decision is reported by the next server, when the one that took it was killed before its report", async () => {
  const first = start();
  const id = await hold();
  expect(await types()).toEqual(["approval.waiting"]);
  await first.stop();
  await decide(id);
  // The killed server had already claimed it.
  await own.database.query({ text: "UPDATE runtime.approval_changes SET claimed_until = now()" });
  start();
  expect(await types()).toEqual(["approval.waiting", "approval.ended"]);
});

test("a report that fails stays due, and others do not wait for it", async () => {
  const [failing, working] = [await hold(), await hold()];
  const isOf = ({ streamId }: Append) => streamId === failing;
  const broken = start({
    append: (request) => (isOf(request) ? Promise.reject(new Error("disk full")) : authority.append(request)),
  });
  await until("the other is reported", async () => (await authority.head()) === 1n);
  expect(await authority.read(0n, 10)).toMatchObject([{ data: { approval: { id: working } } }]);
  await broken.stop();
  await own.database.query({ text: "UPDATE runtime.approval_changes SET claimed_until = now()" });
  start();
  expect(await types()).toEqual(["approval.waiting", "approval.waiting"]);
});

test("a server that is late does not report that a decided task waits", async () => {
  const id = await hold();
  const [arrived, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isLate = true;
  start({
    async append(request) {
      if (isLate) {
        isLate = false;
        arrived.resolve();
        await released.promise;
      }
      return authority.append(request);
    },
  });
  await arrived.promise;
  // Another server reports the same change, and then the decision.
  await own.database.query({ text: "UPDATE runtime.approval_changes SET claimed_until = NULL" });
  start();
  await until("the other was faster", async () => (await authority.head()) === 1n);
  await decide(id);
  expect(await types()).toEqual(["approval.waiting", "approval.ended"]);
  released.resolve();
  // Its claim is over, so it can only be refused.
  await running[0]!.stop();
  expect(await types()).toEqual(["approval.waiting", "approval.ended"]);
});

test("the backlog of one org does not delay the change of another", async () => {
  await own.database.query({
    text: `INSERT INTO runtime.approval_changes (org_id, approval_id)
      SELECT 'loud', 'approval-' || i FROM generate_series(1, 250) i`,
  });
  const before = await hold();
  let later = "";
  const orgs: string[] = [];
  start({
    async find(stream) {
      orgs.push(stream.org);
      // Another one begins to wait while the backlog is reported.
      if (orgs.length === 5) later = await hold();
      return authority.find(stream);
    },
  });
  const events = await reported();
  expect(events).toMatchObject([before, later].map((id) => ({ data: { approval: { id } }, org: "acme" })));
  expect(orgs).toHaveLength(252);
  expect(orgs.lastIndexOf("acme")).toBeLessThan(20);
});
