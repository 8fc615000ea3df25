import { SCOPES, workScope } from "@khala/contracts";
import type { SettleRequestJson } from "@khala/contracts/blackboard/v1";
import { testContext } from "@khala/test-support/kit/context";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Artifact } from "../model/artifact.ts";
import { FatalError, RateLimitedError, RetryableError } from "../model/errors.ts";
import type { Settlement, Task } from "../model/task.ts";
import { Cancelled } from "../work/cancellation.ts";
import { openRemote, type Remote, type RemoteOptions } from "./remote.ts";

let shared: TestDatabase;
beforeAll(async () => {
  shared = await testDatabase({ poolSize: 8 });
});
afterAll(() => shared[Symbol.asyncDispose]());

let agents = 0;
/** An agent of its own for each test: they share the database. */
const newAgent = () => `agent-${++agents}`;
/** A worker for every agent of the org. */
const WORKER = testViewer({ scopes: [SCOPES.blackboardWork] });
const never = new AbortController().signal;
const ask = { worker: "w1", max: 1, waitMs: 5_000 };

async function serverOf(agent: string, options: Partial<RemoteOptions> & { timeoutMs?: number } = {}) {
  const context = await testContext();
  const { timeoutMs = 60_000, ...rest } = options;
  const remote = openRemote(shared.database, context, {
    agents: [{ name: agent, timeoutMs, concurrency: 100 }],
    wakeups: { send() {} },
    leaseMs: 10_000,
    pollMs: 20,
    ...rest,
  });
  return Object.assign(remote, { [Symbol.asyncDispose]: () => remote.stop() });
}

async function taskOf(agent: string, more: Partial<Task> = {}): Promise<Task> {
  const { newId } = await testContext();
  const id = newId();
  const artifact: Artifact = {
    id,
    type: "Draft",
    // Half a character, which PostgreSQL stores as JSON and cannot take out of it.
    payload: { text: "hi \ud83d" },
    tags: [],
    produced_by: "user:ada",
    visibility: { kind: "org" },
    version: 1,
    created_at: "2026-01-01T00:00:00.000Z",
    org_id: "acme",
    depth: 0,
  };
  return { id, agent, artifacts: [artifact], key: id, attempt: 1, created_at: artifact.created_at, ...more };
}

/** Works as an executor does, and reports the settlement as the board would. */
async function execute(remote: Remote, task: Task, signal = never): Promise<Settlement> {
  const settlement = await remote.work(task, signal).then(
    (outputs): Settlement => ({ kind: "done", outputs: outputs as Artifact[] }),
    (error): Settlement => {
      const failure = { class: error.name, message: error.message, kind: "retryable" as const };
      return error instanceof FatalError ? { kind: "dead", failure } : { kind: "retry", failure, delayMs: 0 };
    },
  );
  remote.settled(task, settlement);
  return settlement;
}

test("a worker claims a task, and its outputs become those of the task", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const task = await taskOf(agent);
  const work = execute(remote, task);
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  expect(claim).toEqual({
    claim_id: expect.any(String),
    task,
    idempotency_key: `${task.id}:${agent}@acme`,
    lease_ms: 10_000,
  });
  expect(await remote.heartbeat(WORKER, claim!.claim_id!)).toEqual({ lease_ms: 10_000, cancelled: false });
  const outputs = [{ type: "Review", payload: { good: true } }];
  expect(await remote.settle(WORKER, claim!.claim_id!, { outputs })).toEqual({ status: "done" });
  expect(await work).toEqual({ kind: "done", outputs });
});

test("answers a repeated settlement the same, and refuses a different one", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const work = execute(remote, await taskOf(agent));
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  const settle = (type: string) =>
    remote.settle(WORKER, claim!.claim_id!, { outputs: [{ type, payload: 1 }] });
  const answers = await Promise.all([settle("A"), settle("A")]);
  expect([...answers, await settle("A")]).toEqual(Array(3).fill({ status: "done" }));
  await expect(settle("B")).rejects.toMatchObject({ code: "lease_lost" });
  expect(await work).toMatchObject({ outputs: [{ type: "A" }] });
});

test.each([
  ["retryable", RetryableError, "retry", {}],
  ["fatal", FatalError, "dead", {}],
  ["rate_limited", RateLimitedError, "retry", { retry_after_ms: 1_500 }],
])("throws a %s failure as if the agent had thrown it", async (kind, type, status, more) => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const task = await taskOf(agent);
  const work = remote.work(task, never);
  const failed = work.catch((error) => error);
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  const failure = { class: "ValueError", message: "no words", kind };
  const settled = remote.settle(WORKER, claim!.claim_id!, { failure, ...more });
  const error = await failed;
  expect(error).toBeInstanceOf(type);
  expect(error).toMatchObject({ name: "ValueError", message: "no words" });
  if (error instanceof RateLimitedError) expect(error.retryAfterMs).toBe(1_500);
  remote.settled(
    task,
    status === "dead"
      ? { kind: "dead", failure: { ...failure, kind: "fatal" } }
      : { kind: "retry", failure: { ...failure, kind: "retryable" }, delayMs: 0 },
  );
  expect(await settled).toEqual({ status });
});

test("the next attempt after a failure is a new claim", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const task = await taskOf(agent);
  void execute(remote, task);
  const [first] = await remote.claim(WORKER, agent, ask, never);
  const failure = { class: "E", message: "m", kind: "retryable" };
  expect(await remote.settle(WORKER, first!.claim_id!, { failure })).toEqual({ status: "retry" });
  const work = execute(remote, { ...task, attempt: 2 });
  const [second] = await remote.claim(WORKER, agent, ask, never);
  expect(second!.claim_id).not.toBe(first!.claim_id);
  expect(second!.idempotency_key).toBe(first!.idempotency_key);
  expect(second!.task!.attempt).toBe(2);
  await remote.settle(WORKER, second!.claim_id!, {});
  expect(await work).toEqual({ kind: "done", outputs: [] });
});

test("gives a task to another worker when its lease ends, and refuses the late settlement", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const work = execute(remote, await taskOf(agent));
  const [late] = await remote.claim(WORKER, agent, ask, never);
  await shared.database.query({
    text: "UPDATE runtime.board_claims SET lease_until = now() - interval '1 second' WHERE claim_id = $1",
    values: [late!.claim_id],
  });
  const [claim] = await remote.claim(WORKER, agent, { ...ask, worker: "w2" }, never);
  expect(claim!.idempotency_key).toBe(late!.idempotency_key);
  await expect(remote.settle(WORKER, late!.claim_id!, {})).rejects.toMatchObject({ code: "lease_lost" });
  await expect(remote.heartbeat(WORKER, late!.claim_id!)).rejects.toMatchObject({ code: "lease_lost" });
  await remote.settle(WORKER, claim!.claim_id!, { outputs: [{ type: "A" }] });
  expect(await work).toMatchObject({ kind: "done", outputs: [{ type: "A" }] });
});

test("fails a task in the end when every worker dies", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent, { leaseMs: 20 });
  const work = remote.work(await taskOf(agent), never);
  const failed = work.catch((error) => error);
  for (let i = 0; i < 3; i++) expect(await remote.claim(WORKER, agent, ask, never)).toHaveLength(1);
  expect(await failed).toBeInstanceOf(RetryableError);
  expect(await remote.claim(WORKER, agent, { ...ask, waitMs: 0 }, never)).toEqual([]);
});

test("the agent's timeout counts from the claim", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent, { timeoutMs: 60 });
  const failed = remote.work(await taskOf(agent), never).catch((error) => error);
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  expect((await failed).message).toContain("longer than 60 ms");
  expect(await remote.heartbeat(WORKER, claim!.claim_id!)).toEqual({ lease_ms: 0, cancelled: true });
});

test("cancels a worker's task when the server no longer wants it", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const cancel = new AbortController();
  const work = remote.work(await taskOf(agent), cancel.signal);
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  cancel.abort(new Cancelled("cancelled"));
  await expect(work).rejects.toThrow("cancelled");
  await until("the news", async () => (await remote.heartbeat(WORKER, claim!.claim_id!)).cancelled);
  await expect(remote.settle(WORKER, claim!.claim_id!, {})).rejects.toMatchObject({ code: "lease_lost" });
});

test("any server accepts a claim, heartbeat and settlement, even without wakeups", async () => {
  const agent = newAgent();
  await using holder = await serverOf(agent);
  await using other = await serverOf(agent);
  const asked = other.claim(WORKER, agent, ask, never);
  const work = execute(holder, await taskOf(agent));
  const [claim] = await asked;
  expect(await other.heartbeat(WORKER, claim!.claim_id!)).toMatchObject({ cancelled: false });
  expect(await other.settle(WORKER, claim!.claim_id!, { outputs: [{ type: "A" }] })).toEqual({
    status: "done",
  });
  expect(await work).toMatchObject({ outputs: [{ type: "A" }] });
});

test("a wakeup ends the wait for a claim", async () => {
  const agent = newAgent();
  const all: Remote[] = [];
  const wakeups = { send: (name: string) => all.forEach((remote) => void remote.onWakeup(name)) };
  await using holder = await serverOf(agent, { wakeups, pollMs: 60_000 });
  await using other = await serverOf(agent, { wakeups, pollMs: 60_000 });
  all.push(holder, other);
  const asked = other.claim(WORKER, agent, ask, never);
  const work = execute(holder, await taskOf(agent));
  const [claim] = await asked;
  expect(await other.settle(WORKER, claim!.claim_id!, {})).toEqual({ status: "done" });
  await work;
  expect(holder.onWakeup("log:x")).toBe(false);
});

test("the server that gets a dead server's task takes over its worker", async () => {
  const agent = newAgent();
  await using other = await serverOf(agent);
  const task = await taskOf(agent);
  const dead = await serverOf(agent);
  void dead.work(task, never);
  const [claim] = await other.claim(WORKER, agent, ask, never);
  await dead.stop();
  const work = execute(other, { ...task, attempt: 2 });
  expect(await other.claim(WORKER, agent, { ...ask, waitMs: 0 }, never)).toEqual([]);
  expect(await other.settle(WORKER, claim!.claim_id!, { outputs: [{ type: "A" }] })).toEqual({
    status: "done",
  });
  expect(await work).toMatchObject({ outputs: [{ type: "A" }] });
});

test.each([
  ["outputs", { outputs: [{ type: "A" }] }, { kind: "done", outputs: [{ type: "A" }] }, 2, "done"],
  [
    "a failure",
    { failure: { class: "E", message: "no words", kind: "retryable" } },
    { kind: "retry", failure: { message: "no words" } },
    // As on Kafka, where an attempt is counted when its failure is written.
    1,
    "retry",
  ],
] satisfies [string, SettleRequestJson, object, number, string][])(
  "the next server applies %s that a server could not apply",
  async (_, body, settlement, attempt, status) => {
    const agent = newAgent();
    await using other = await serverOf(agent, { outcomeMs: 100 });
    const task = await taskOf(agent);
    const dead = await serverOf(agent);
    void dead.work(task, never);
    const [claim] = await other.claim(WORKER, agent, ask, never);
    await dead.stop();
    const settle = () => other.settle(WORKER, claim!.claim_id!, body);
    await expect(settle()).rejects.toMatchObject({ code: "unavailable" });
    expect(await execute(other, { ...task, attempt })).toMatchObject(settlement);
    expect(await until("the outcome", () => settle().catch(() => undefined))).toEqual({ status });
  },
);

test("a task that moves to another server stays with its worker, or is offered there", async () => {
  const agent = newAgent();
  await using before = await serverOf(agent);
  await using after = await serverOf(agent);
  const moved = new AbortController();
  const tasks = [await taskOf(agent), await taskOf(agent)];
  const works = tasks.map((task) => before.work(task, moved.signal).catch(() => undefined));
  const [claim] = await after.claim(WORKER, agent, ask, never);
  moved.abort();
  await Promise.all(works);
  await until("the offer is taken back", async () => {
    const [row] = await shared.database.query<{ open: number }>({
      text: "SELECT count(*)::int AS open FROM runtime.board_claims WHERE agent = $1 AND state = 'offered'",
      values: [agent],
    });
    return row!.open === 0;
  });
  expect(await before.heartbeat(WORKER, claim!.claim_id!)).toMatchObject({ cancelled: false });
  const taken = tasks.map((task) => execute(after, task));
  const [second] = await before.claim(WORKER, agent, ask, never);
  for (const { claim_id } of [claim!, second!]) await before.settle(WORKER, claim_id!, {});
  expect(await Promise.all(taken)).toEqual(Array(2).fill({ kind: "done", outputs: [] }));
});

test("a draining server leaves its offers and workers to the next one", async () => {
  const agent = newAgent();
  await using next = await serverOf(agent);
  const leaving = await serverOf(agent);
  const given = new AbortController();
  const tasks = [await taskOf(agent), await taskOf(agent)];
  const works = tasks.map((task) => leaving.work(task, given.signal).catch(() => undefined));
  const [claim] = await next.claim(WORKER, agent, ask, never);
  await leaving.drain();
  expect(await next.claim(WORKER, agent, { ...ask, waitMs: 0 }, never)).toEqual([]);
  given.abort();
  await Promise.all(works);
  await leaving.stop();
  expect(await next.heartbeat(WORKER, claim!.claim_id!)).toMatchObject({ cancelled: false });
  const taken = tasks.map((task) => execute(next, task));
  const [second] = await next.claim(WORKER, agent, ask, never);
  for (const { claim_id } of [claim!, second!]) await next.settle(WORKER, claim_id!, {});
  expect(await Promise.all(taken)).toEqual(Array(2).fill({ kind: "done", outputs: [] }));
});

test("many workers take each task once, up to the number they ask for", async () => {
  const agent = newAgent();
  await using one = await serverOf(agent);
  await using two = await serverOf(agent);
  const tasks = await Promise.all(Array.from({ length: 20 }, () => taskOf(agent)));
  const works = tasks.map((task, i) => execute(i % 2 ? one : two, task));
  const seen: string[] = [];
  const worker = async (server: Remote, max: number) => {
    while (seen.length < tasks.length) {
      const claims = await server.claim(WORKER, agent, { worker: "w", max, waitMs: 300 }, never);
      expect(claims.length).toBeLessThanOrEqual(max);
      seen.push(...claims.map(({ task }) => task!.id!));
      await Promise.all(claims.map(({ claim_id }) => server.settle(WORKER, claim_id!, {})));
    }
  };
  await Promise.all([worker(one, 1), worker(two, 5), worker(one, 3)]);
  await Promise.all(works);
  expect(seen.toSorted()).toEqual(tasks.map(({ id }) => id).toSorted());
});

test("a worker that disconnects while it waits takes no task", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const gone = new AbortController();
  const asked = remote.claim(WORKER, agent, ask, gone.signal);
  gone.abort();
  expect(await asked).toEqual([]);
  const work = execute(remote, await taskOf(agent));
  const [claim] = await remote.claim(WORKER, agent, ask, never);
  await remote.settle(WORKER, claim!.claim_id!, {});
  await work;
});

test("a worker reaches the claims of its agents in its org, and no others", async () => {
  const agent = newAgent();
  await using remote = await serverOf(agent);
  const work = execute(remote, await taskOf(agent));
  const foreign = testViewer({ org: "other", scopes: [SCOPES.blackboardWork] });
  const editor = testViewer({ scopes: [workScope("editor")] });
  const named = testViewer({ scopes: [workScope(agent)] });
  const platform = testViewer({ org: "host", scopes: [SCOPES.blackboardWork, SCOPES.platform] });
  expect(await remote.claim(foreign, agent, { ...ask, waitMs: 100 }, never)).toEqual([]);
  const [claim] = await remote.claim(platform, agent, ask, never);
  const id = claim!.claim_id!;
  const unknown = (await testContext()).newId();
  const nothing = await remote.heartbeat(named, unknown).catch((error) => error);
  for (const caller of [foreign, editor]) {
    for (const attempt of [() => remote.heartbeat(caller, id), () => remote.settle(caller, id, {})]) {
      const error = await attempt().catch((reason) => reason);
      expect(error).toMatchObject({ code: "not_found", message: nothing.message.replace(unknown, id) });
    }
  }
  await expect(remote.claim(WORKER, "nobody", ask, never)).rejects.toMatchObject({ code: "not_found" });
  expect(await remote.heartbeat(named, id)).toMatchObject({ cancelled: false });
  expect(await remote.settle(platform, id, {})).toEqual({ status: "done" });
  await work;
});
