import { agent, FatalError, type Khala } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { BACKENDS } from "@khala/test-support/servers/backends";
import {
  ADA,
  arrived,
  boardServers,
  buried,
  Held,
  idle,
  listed,
  publish,
  stands,
} from "@khala/test-support/servers/board_servers";
import { describe, expect, test } from "vitest";

/** Fails for good unless the payload, or the world by now, is sound. */
function fragile(world: { fixed: boolean; runs: string[] }) {
  return agent("fragile", {
    consumes: "Part",
    run({ artifact, idempotencyKey }) {
      world.runs.push(idempotencyKey);
      if (!world.fixed && artifact.payload !== "sound") throw new FatalError("It broke.");
      return { type: "Whole", payload: artifact.payload };
    },
  });
}

const broken = () => ({ fixed: false, runs: [] as string[] });
const parts = (count: number, correlation_id: string) =>
  Array.from({ length: count }, (_, payload) => ({ type: "Part", payload, correlation_id }));
const stateOf = async ({ blackboard }: Khala, name: string) =>
  (await blackboard.agents()).find((each) => each.name === name)?.state;

describe.each(BACKENDS)("on %s", { timeout: 120_000 }, (backend) => {
  describe("approvals", () => {
    const approvalsOf = ({ blackboard }: Khala, count: number) =>
      eventually(`${count} approvals`, async () => {
        const waiting = await blackboard.approvals(ADA);
        return waiting.length === count && waiting;
      });

    test("a held task runs once when approved and never when rejected; a second decision changes nothing", async () => {
      await using servers = await boardServers(backend);
      const ran: unknown[] = [];
      const signer = agent("signer", {
        consumes: "Contract",
        approval: ({ payload }) => Number(payload) > 10,
        run({ artifact }) {
          ran.push(artifact.payload);
          return { type: "Signed", payload: artifact.payload };
        },
      });
      const [one, two] = [
        await servers.start({ agents: [signer] }),
        await servers.start({ agents: [signer] }),
      ];
      await publish(
        one,
        ...[5, 20, 30].map((payload) => ({ type: "Contract", payload, correlation_id: "c" })),
      );
      const waiting = await approvalsOf(two, 2);
      await arrived(one, "Signed");
      expect(ran).toEqual([5]);
      const idOf = (payload: number) =>
        waiting.find(({ task }) => task?.artifacts?.[0]?.payload === payload)!.id!;

      const yes = { approved: true };
      const no = { approved: false, reason: "too dear" };
      await Promise.all([one, two, one].map(({ blackboard }) => blackboard.decide(ADA, idOf(20), yes)));
      await Promise.all([one, two].map(({ blackboard }) => blackboard.decide(ADA, idOf(30), no)));
      await expect(two.blackboard.decide(ADA, idOf(30), yes)).rejects.toMatchObject({
        code: "already_decided",
      });
      await arrived(two, "Signed", 2);
      await approvalsOf(one, 0);
      await idle(one, "signer");
      expect(ran).toEqual([5, 20]);
      expect((await listed(two, "Signed")).map(({ payload }) => payload)).toEqual([5, 20]);
      expect(await stands(one, "c", "done")).toMatchObject({ open: "0", dead: "0" });
    });
  });

  describe("pause and resume", () => {
    test("an agent paused on one server works on neither, and continues when the other resumes it", async () => {
      await using servers = await boardServers(backend);
      const worker = agent("worker", {
        consumes: "Job",
        run: ({ artifact }) => ({ type: "Result", payload: artifact.payload }),
      });
      const probe = agent("probe", { consumes: "Probe", run: () => ({ type: "Echo", payload: null }) });
      const agents = [worker, probe];
      const [one, two] = [await servers.start({ agents }), await servers.start({ agents })];
      await one.blackboard.pause("worker");
      await eventually("both know", async () => (await stateOf(two, "worker")) === "paused");
      const jobs = Array.from({ length: 20 }, (_, payload) => ({ type: "Job", payload }));
      await publish(two, ...jobs);
      // Others go on on both meanwhile.
      for (let i = 1; i <= 5; i++) {
        await publish(i % 2 ? one : two, { type: "Probe", payload: i });
        await arrived(one, "Echo", i);
      }
      expect(await listed(one, "Result")).toEqual([]);
      await two.blackboard.resume("worker");
      await arrived(one, "Result", 20);
      await idle(one, "worker");
      expect(await listed(one, "Result")).toHaveLength(20);
    });

    test("a pause survives a restart of the servers", async () => {
      await using servers = await boardServers(backend);
      const worker = agent("worker", { consumes: "Job", run: () => ({ type: "Result", payload: null }) });
      const first = await servers.start({ agents: [worker] });
      await first.blackboard.pause("worker");
      await publish(first, { type: "Job", payload: 1 });
      await servers.stop(first);
      const second = await servers.start({ agents: [worker] });
      expect(await stateOf(second, "worker")).toBe("paused");
      await second.blackboard.resume("worker");
      await arrived(second, "Result");
    });
  });

  describe("cancel and resume a correlation", () => {
    test("cancelling aborts running tasks and makes dead letters of all, and resuming replays them", async () => {
      await using servers = await boardServers(backend);
      const held = new Held();
      let resumed = false;
      const worker = agent("worker", {
        consumes: "Job",
        concurrency: 2,
        order: "none",
        async run({ artifact }, signal) {
          if (!resumed && artifact.correlation_id === "c") await held.wait(artifact.id, signal);
          return { type: "Result", payload: artifact.payload };
        },
      });
      const [one, two] = [
        await servers.start({ agents: [worker] }),
        await servers.start({ agents: [worker] }),
      ];
      const jobs = Array.from({ length: 8 }, (_, payload) => ({ type: "Job", payload, correlation_id: "c" }));
      await publish(one, ...jobs);
      await eventually("some run", () => held.started.length >= 2);
      await two.blackboard.cancel(ADA, "c");
      const letters = await buried(one, "worker", 8);
      expect(new Set(letters.map(({ failure }) => failure.class))).toEqual(new Set(["Cancelled"]));
      expect(held.aborted.toSorted()).toEqual(held.started.toSorted());
      expect(await stands(one, "c", "cancelled")).toMatchObject({ open: "0", done: "0", dead: "8" });
      // What comes to it later is parked too; others are not touched.
      await publish(two, { type: "Job", payload: 8, correlation_id: "c" });
      await buried(one, "worker", 9);
      await publish(two, { type: "Job", payload: "other", correlation_id: "d" });
      await stands(two, "d", "done");

      resumed = true;
      expect(await one.blackboard.resumeCorrelation(ADA, "c")).toBe(9);
      await arrived(two, "Result", 10);
      expect(await stands(two, "c", "done")).toMatchObject({
        artifacts: "18",
        open: "0",
        done: "9",
        dead: "0",
      });
      expect(await one.blackboard.resumeCorrelation(ADA, "c")).toBe(0);
      await idle(one, "worker");
      expect(await listed(one, "Result")).toHaveLength(10);
    });

    test("cancelling drops scheduled artifacts", async () => {
      await using servers = await boardServers(backend);
      const clock = new JumpClock();
      const khala = await servers.start({ agents: [], clock });
      const not_before = new Date(clock.now() + 60_000).toISOString();
      const drafts = ["c", "d"].map((correlation_id) => ({
        type: "Late",
        payload: null,
        correlation_id,
        not_before,
      }));
      await khala.blackboard.publish(ADA, drafts);
      await khala.blackboard.cancel(ADA, "c");
      clock.jump(120_000);
      const late = await arrived(khala, "Late");
      expect(late.map(({ correlation_id }) => correlation_id)).toEqual(["d"]);
    });

    test("resuming a half-failed correlation runs the failed half", async () => {
      await using servers = await boardServers(backend);
      const world = broken();
      const polisher = agent("polisher", {
        consumes: "Whole",
        run: () => ({ type: "Shiny", payload: null }),
      });
      const khala = await servers.start({ agents: [fragile(world), polisher] });
      const payloads = ["sound", "cracked", "sound", "bent"];
      await publish(khala, ...payloads.map((payload) => ({ type: "Part", payload, correlation_id: "c" })));
      await arrived(khala, "Shiny", 2);
      expect(await stands(khala, "c", "failed")).toMatchObject({ artifacts: "8", done: "4", dead: "2" });
      world.fixed = true;
      expect(await khala.blackboard.resumeCorrelation(ADA, "c")).toBe(2);
      await arrived(khala, "Shiny", 4);
      expect(await stands(khala, "c", "done")).toMatchObject({ artifacts: "12", done: "8", dead: "0" });
      expect(world.runs).toHaveLength(6);
    });
  });

  describe("replays", () => {
    test("two clicks on two servers replay once, under a new key", async () => {
      await using servers = await boardServers(backend);
      const world = broken();
      const [one, two] = [
        await servers.start({ agents: [fragile(world)] }),
        await servers.start({ agents: [fragile(world)] }),
      ];
      const [id] = await publish(one, { type: "Part", payload: "cracked" });
      const [letter] = await buried(one, "fragile", 1);
      world.fixed = true;
      const clicks = await Promise.all(
        [one, two, one, two].map(({ blackboard }) => blackboard.replay(ADA, "fragile", letter!.id)),
      );
      expect(clicks.map(({ status }) => status).sort()).toEqual([
        "already_replayed",
        "already_replayed",
        "already_replayed",
        "replayed",
      ]);
      const [replayId, ...others] = new Set(clicks.map(({ replay_id }) => replay_id));
      expect(others).toEqual([]);
      await arrived(one, "Whole");
      await idle(two, "fragile");
      expect(world.runs).toEqual([`${id}:fragile@acme`, `${id}:fragile:${replayId}@acme`]);
      expect(await listed(two, "Whole")).toHaveLength(1);
      expect(await two.blackboard.deadLetter(ADA, "fragile", letter!.id)).toMatchObject({
        replay_id: replayId,
      });
    });

    test("a replay runs with an edited payload, and a failed replay is a new dead letter", async () => {
      await using servers = await boardServers(backend);
      const world = broken();
      const khala = await servers.start({ agents: [fragile(world)] });
      await publish(khala, { type: "Part", payload: "cracked" }, { type: "Part", payload: "bent" });
      const letters = await buried(khala, "fragile", 2);
      const of = (payload: string) => letters.find(({ task }) => task?.artifacts[0].payload === payload)!.id;
      await khala.blackboard.replay(ADA, "fragile", of("cracked"), { payload: "sound" });
      const [whole] = await arrived(khala, "Whole");
      expect(whole!.payload).toBe("sound");
      await khala.blackboard.replay(ADA, "fragile", of("bent"));
      const fresh = await eventually("a new dead letter", async () => {
        const { deadLetters } = await khala.blackboard.deadLetters(ADA, "fragile", { limit: 10 });
        return deadLetters.find(({ id, replay_id }) => !letters.some((old) => old.id === id) && !replay_id);
      });
      await khala.blackboard.replay(ADA, "fragile", fresh.id, { payload: "sound" });
      await arrived(khala, "Whole", 2);
      expect(world.runs).toHaveLength(5);
    });

    test("replay-all replays everything once, and leaves nothing for the second call", async () => {
      await using servers = await boardServers(backend);
      const world = broken();
      const [one, two] = [
        await servers.start({ agents: [fragile(world)] }),
        await servers.start({ agents: [fragile(world)] }),
      ];
      await publish(one, ...parts(250, "c"));
      await buried(one, "fragile", 250);
      world.fixed = true;
      const [first, second] = await Promise.all([
        one.blackboard.replayAll(ADA, "fragile", {}),
        two.blackboard.replayAll(ADA, "fragile", {}),
      ]);
      expect(Number(first.replayed) + Number(second.replayed)).toBe(250);
      await arrived(one, "Whole", 250);
      expect(await stands(one, "c", "done")).toMatchObject({ artifacts: "500", done: "250", dead: "0" });
      expect(world.runs).toHaveLength(500);
    });
  });
});

test("pausing an unknown agent is refused", async () => {
  await using servers = await boardServers();
  const khala = await servers.start({ agents: [] });
  await expect(khala.blackboard.pause("nobody")).rejects.toMatchObject({ code: "not_found" });
});
