import { agent, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  type BoardServers,
  boardServers,
  idle,
  publish,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

const HOUR = 3_600_000;

/** Waits until a correlation stands so, and waits for that. */
const waits = ({ blackboard }: Khala, correlationId: string, status: string, what: object) =>
  eventually(`${correlationId} is ${status}, and waits`, async () => {
    const state = await blackboard.correlation(ADA, correlationId);
    return (
      state?.status === status && JSON.stringify(state.waits ?? {}) === JSON.stringify(what) && { ...state }
    );
  });

/** The ids of the documents in the topic `approvals`. */
async function inTopic({ database }: BoardServers): Promise<string[]> {
  const rows = await database.query<{ key: string }>({
    text: "SELECT doc_key AS key FROM runtime.sync_approvals WHERE org_id = $1 AND NOT deleted",
    values: [ADA.org],
  });
  return rows.map(({ key }) => key.replace("approval:", ""));
}

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  test("a correlation lists what it waits for, and is done when nothing is left", async () => {
    await using servers = await boardServers(backend);
    const clock = new JumpClock();
    const signer = agent("signer", {
      consumes: "Contract",
      approval: true,
      run: () => ({ type: "Signed", payload: null }),
    });
    const pair = agent("pair", {
      consumes: ["Left", "Right"],
      join: { types: ["Left", "Right"], within: HOUR },
      run: () => ({ type: "Pair", payload: null }),
    });
    const khala = await servers.start({ agents: [signer, pair], clock });
    await publish(khala, { type: "Contract", payload: 1, correlation_id: "signed" });
    expect(await waits(khala, "signed", "waiting", { approvals: "1" })).toMatchObject({ open: "1" });
    await publish(khala, { type: "Left", payload: 1, correlation_id: "pair" });
    await waits(khala, "pair", "waiting", { gathering: "1" });
    await publish(khala, { type: "Left", payload: 1, correlation_id: "left" });
    await waits(khala, "left", "waiting", { gathering: "1" });
    const not_before = new Date(clock.now() + HOUR / 2).toISOString();
    const late = { type: "Late", payload: 1, correlation_id: "late", not_before };
    await khala.blackboard.publish(ADA, [late]);
    expect(await waits(khala, "late", "waiting", { scheduled: "1" })).toMatchObject({ artifacts: "0" });

    const [approval] = await khala.blackboard.approvals(ADA);
    await eventually(
      "the topic has what waits",
      async () => (await inTopic(servers)).join() === approval!.id,
    );
    await khala.blackboard.decide(ADA, approval!.id!, { approved: true });
    await publish(khala, { type: "Right", payload: 1, correlation_id: "pair" });
    await arrived(khala, "Signed");
    await eventually("the topic is empty", async () => (await inTopic(servers)).length === 0);
    await arrived(khala, "Pair");
    clock.jump(HOUR);
    await arrived(khala, "Late");
    for (const id of ["signed", "pair", "late"]) await waits(khala, id, "done", {});
    // A join whose time is up is a dead letter that says what it missed.
    expect(await waits(khala, "left", "failed", {})).toMatchObject({ dead: "1", open: "0" });
    const { deadLetters } = await khala.blackboard.deadLetters(ADA, "pair", { limit: 10 });
    expect(deadLetters).toMatchObject([
      {
        task: { artifacts: [{ type: "Left", correlation_id: "left" }] },
        failure: {
          class: "IncompleteJoin",
          message: expect.stringMatching(/is incomplete after 3600000 ms: it has "Left" and lacks "Right"/),
          kind: "fatal",
        },
      },
    ]);
    // What an agent put aside it has not done.
    const done = (await khala.blackboard.agents()).map(({ name, done }) => [name, done]);
    expect(Object.fromEntries(done)).toEqual({ signer: "1", pair: "1" });
  });

  test.each([
    ["in its place", 900, 3],
    ["in a tier", 3_000, 1],
  ])("a correlation waits for its tasks that are retried later: %s", async (_, delay, fails) => {
    await using servers = await boardServers(backend);
    let failures = 0;
    const shaky = agent("shaky", {
      consumes: "Job",
      retry: { attempts: 20, base: delay, cap: delay },
      run() {
        if (failures++ < fails) throw new Error("not yet");
        return { type: "Result", payload: null };
      },
    });
    const khala = await servers.start({ agents: [shaky] });
    // On Kafka correlations are counted from the first time that somebody asks.
    await khala.blackboard.correlation(ADA, "c");
    await publish(khala, { type: "Job", payload: 1, correlation_id: "c" });
    expect(await waits(khala, "c", "running", { retries: "1" })).toMatchObject({ open: "1", done: "0" });
    await arrived(khala, "Result");
    await waits(khala, "c", "done", {});
  });

  test("every server reports the running tasks of all, also one that runs none", async () => {
    await using servers = await boardServers(backend);
    const held = Promise.withResolvers<void>();
    const worker = agent("worker", { consumes: "Job", run: () => held.promise });
    const agents = [worker];
    const busy = await servers.start({ agents });
    const front = await servers.start({ agents, settings: { KHALA_BOARD_AGENTS: "false" } });
    const figures = async ({ blackboard }: Khala) => {
      const [state] = await blackboard.agents();
      return `${state!.waiting} waiting, ${state!.running} running`;
    };
    const everywhere = (expected: string) =>
      eventually(expected, async () =>
        (await Promise.all([busy, front].map(figures))).every((said) => said === expected),
      );
    await publish(front, { type: "Job", payload: 1 }, { type: "Job", payload: 2 });
    await everywhere("0 waiting, 2 running");
    held.resolve();
    await everywhere("0 waiting, 0 running");
  });

  test("every server reports the totals of all, also after a restart", async () => {
    await using servers = await boardServers(backend);
    const failed = new Set<string>();
    const worker = agent("worker", {
      consumes: "Job",
      retry: { base: 1, cap: 1 },
      run({ artifact }) {
        if (Number(artifact.payload) % 10 > 0 || failed.has(artifact.id)) return;
        failed.add(artifact.id);
        throw new Error("once");
      },
    });
    const agents = [worker];
    const figures = async ({ blackboard }: Khala) => {
      const [state] = await blackboard.agents();
      return `${state!.done} done, ${state!.retried} retried`;
    };
    const [one, two] = [await servers.start({ agents }), await servers.start({ agents })];
    const jobs = Array.from({ length: 100 }, (_, payload) => ({ type: "Job", payload }));
    await publish(one, ...jobs);
    const all = "100 done, 10 retried";
    await eventually("all is done", async () => (await figures(one)) === all && (await figures(two)) === all);
    await idle(one, "worker");
    await servers.stop(one);
    await servers.stop(two);
    const three = await servers.start({ agents });
    expect(await figures(three)).toBe(all);
    await publish(three, { type: "Job", payload: 1 });
    await eventually("one more", async () => (await figures(three)) === "101 done, 10 retried");
  });
});

test("the document of a waiting correlation shows what it waits for", async () => {
  await using servers = await boardServers();
  const reader = agent("reader", { consumes: "Late", run: () => undefined });
  const khala = await servers.start({ agents: [reader] });
  const not_before = new Date(Date.now() + HOUR).toISOString();
  await khala.blackboard.publish(ADA, [{ type: "Late", payload: 1, correlation_id: "c", not_before }]);
  await eventually("the document is there", async () => {
    const [row] = await servers.database.query<{ document: string }>({
      text: "SELECT convert_from(payload, 'UTF8') AS document FROM runtime.sync_board_correlations",
    });
    return row?.document.includes('"waits":{"scheduled":"1"}');
  });
});
