import type { AgentCountedJson, CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { testAgent, testArtifact, testTask } from "@khala/test-support/kit/recording_board";
import { beforeEach, expect, test } from "vitest";
import type { AgentCounts, AgentOfOrg, CorrelationCounts, CorrelationName } from "../model/counts.ts";
import type { Settlement } from "../model/task.ts";
import type { WaitingCounts } from "./correlation_state.ts";
import { type Progress, type ProgressOptions, startProgress } from "./progress.ts";
import { openSetAside } from "./set_aside.ts";
import type { AgentTotals } from "./totals.ts";

const PLACE = { topic: "tasks", partition: 0, offset: "1" };
const NOTHING_OFF: WaitingCounts = {
  approvals: 0,
  gathering: 0,
  scheduled: 0,
  paused: 0,
  returning: 0,
  sending: 0,
};
const DONE: Settlement = { kind: "done", outputs: [] };

let clock: ManualClock;
let progress: Progress;
let correlations: Map<string, CorrelationCounts>;
let agents: AgentCounts[];
let reports: [string, string, CorrelationCountedJson][];
let agentReports: [string, string, AgentCountedJson][];
let asked: string[][];
let failing: boolean;
let cancelled: Set<string>;
let paused: Set<string>;
let off: Map<string, Partial<WaitingCounts>>;
let state: string;
let settledTasks: string[];
let totals: Map<string, AgentTotals>;
beforeEach(async () => {
  clock = new ManualClock();
  correlations = new Map();
  agents = [{ agent: "reviewer", waiting: 0, running: 0, dead: 0 }];
  reports = [];
  agentReports = [];
  asked = [];
  failing = false;
  cancelled = new Set();
  paused = new Set();
  off = new Map();
  state = "running";
  settledTasks = [];
  totals = new Map();
  progress = await start();
  return () => progress.stop();
});

async function start(more: Partial<ProgressOptions> = {}): Promise<Progress> {
  const board = {
    async correlations(names: readonly CorrelationName[]) {
      asked.push(names.map(({ name }) => name));
      if (failing) throw new Error("down");
      return names.flatMap(({ name }) => correlations.get(name) ?? []);
    },
    countsOf: async (of: readonly AgentOfOrg[]) =>
      of.map(({ agent, org }) => {
        const counts = (org === "acme" ? agents : []).find((each) => each.agent === agent);
        return counts ?? { agent, waiting: 0, running: 0, dead: 0 };
      }),
  };
  return startProgress(board, await testContext({ clock }), {
    agents: [testAgent("reviewer", {})],
    report: {
      correlation: async (org, id, counted) => void reports.push([org, id, counted]),
      agent: async (org, name, counted) => void agentReports.push([org, name, counted]),
    },
    totals: {
      settled: ({ agent, org }, { kind }) => void settledTasks.push(`${agent} ${org} ${kind}`),
      share: async () => (agent) => totals.get(agent) ?? { done: 0, retried: 0, published: new Map() },
      hasUnsaved: () => false,
    },
    stateOf: () => state,
    cancelled: (org, id) => cancelled.has(`${org} ${id}`),
    paused: (org, id) => paused.has(`${org} ${id}`),
    waitingCounts: async (names) => names.map(({ name }) => ({ ...NOTHING_OFF, ...off.get(name) })),
    ...more,
  });
}

const artifact = (correlation: string) => testArtifact(`id-${correlation}`, { correlation_id: correlation });
function count(correlationId: string, open: number, done: number, dead = 0): void {
  correlations.set(correlationId, {
    correlationId,
    org: "acme",
    artifacts: 1,
    open,
    retrying: 0,
    done,
    dead,
  });
}
/** A tick, and what it sets in motion. */
async function tick(ms = 250): Promise<void> {
  await clock.advance(ms);
  for (let i = 0; i < 10; i++) await new Promise(setImmediate);
}

test("reports a correlation at most once in a quarter of a second", async () => {
  count("c", 3, 97);
  for (let i = 0; i < 100; i++) progress.observer.settled(testTask("reviewer", artifact("c")), DONE, PLACE);
  expect(reports).toEqual([]);
  await tick();
  expect(reports).toEqual([
    ["acme", "c", { status: "running", artifacts: "1", open: "3", done: "97", dead: "0" }],
  ]);
  expect(asked).toEqual([["c"]]);
});

test("always reports the end: done, failed or cancelled", async () => {
  cancelled.add("acme z");
  for (const [id, dead] of [
    ["x", 0],
    ["y", 1],
    ["z", 0],
  ] as const) {
    count(id, 1, 0);
    progress.observer.published([artifact(id)]);
    await tick();
    count(id, 0, 1, dead);
    progress.observer.settled(testTask("reviewer", artifact(id)), DONE, PLACE);
    await tick();
  }
  expect(reports.map(([, id, { status }]) => `${id} ${status}`)).toEqual([
    "x running",
    "x done",
    "y running",
    "y failed",
    "z cancelled",
    "z cancelled",
  ]);
});

test("neither reads nor reports counts without a change", async () => {
  count("c", 0, 1);
  progress.observer.published([artifact("c")]);
  await tick();
  progress.observer.published([artifact("c")]);
  await tick();
  expect(reports).toHaveLength(1);
  const before = asked.length;
  await tick(60_000);
  expect(asked).toHaveLength(before);
});

test("reads lagging counts again until nothing is open", async () => {
  count("c", 1, 0);
  progress.observer.settled(testTask("reviewer", artifact("c")), DONE, PLACE);
  await tick();
  count("c", 0, 1);
  await tick(1_000);
  await tick();
  expect(reports.map(([, , { status }]) => status)).toEqual(["running", "done"]);
  expect(asked.length).toBeLessThan(4);
});

test("does not mix the counts of two orgs' correlations with the same name", async () => {
  correlations.set("c", {
    correlationId: "c",
    org: "zeta",
    artifacts: 9,
    open: 0,
    retrying: 0,
    done: 9,
    dead: 0,
  });
  progress.observer.published([artifact("c")]);
  await tick();
  expect(reports).toEqual([]);
});

test("reports later when a read or a report fails", async () => {
  failing = true;
  count("c", 0, 1);
  progress.observer.published([artifact("c")]);
  await tick();
  expect(reports).toEqual([]);
  failing = false;
  await tick(5_000);
  expect(reports).toHaveLength(1);
});

test("sets aside a correlation that cannot be reported, and continues with the others", async () => {
  const setAside = openSetAside(await testContext({ clock }));
  let refuses = true;
  let tries = 0;
  await using own = Object.assign(
    await start({
      setAside,
      report: {
        async correlation(org, id, counted) {
          if (id !== "bad") return void reports.push([org, id, counted]);
          tries++;
          if (refuses) throw new Error("illegal id");
        },
        async agent() {},
      },
    }),
    { [Symbol.asyncDispose]: () => own.stop() },
  );
  await tick();
  for (const id of ["bad", "good"]) {
    count(id, 0, 1);
    own.observer.published([artifact(id)]);
  }
  await tick();
  expect(reports.map(([, id]) => id)).toEqual(["good"]);
  expect(setAside.problems()).toEqual(["board progress: 1 set aside"]);
  own.observer.published([artifact("bad")]);
  await tick();
  expect(tries).toBe(1);
  refuses = false;
  await tick(2_000);
  expect([tries, setAside.problems()]).toEqual([2, []]);
});

test("reports an agent with its state, its waiting tasks and the totals of all servers", async () => {
  totals.set("reviewer", { done: 40, retried: 3, published: new Map() });
  agents = [{ agent: "reviewer", waiting: 4, running: 2, dead: 1 }];
  const task = testTask("reviewer", artifact("c"));
  const failure = { class: "Error", message: "no", kind: "retryable" } as const;
  progress.observer.routed(artifact("c"), [task]);
  progress.observer.settled(task, DONE, PLACE);
  progress.observer.settled(task, { kind: "retry", failure, delayMs: 1 }, PLACE);
  await tick();
  const counted = {
    consumes: ["Draft"],
    state,
    waiting: "4",
    running: "2",
    done: "40",
    retried: "3",
    dead: "1",
  };
  expect(settledTasks).toEqual(["reviewer acme done", "reviewer acme retry"]);
  expect(agentReports).toEqual([["acme", "reviewer", counted]]);
  state = "paused";
  progress.agentChanged("reviewer");
  await tick();
  expect(agentReports.at(-1)).toEqual(["acme", "reviewer", { ...counted, state: "paused" }]);
});

test("reports what a correlation waits for, until it waits no more", async () => {
  count("c", 0, 2);
  off.set("c", { approvals: 1, gathering: 2 });
  progress.observer.settled(testTask("reviewer", artifact("c")), DONE, PLACE);
  await tick();
  off.delete("c");
  await tick(1_000);
  await tick();
  paused.add("acme c");
  progress.correlationChanged("acme", "c");
  await tick();
  const figures = { artifacts: "1", dead: "0" };
  expect(reports.map(([, , counted]) => counted)).toEqual([
    { ...figures, status: "waiting", open: "1", done: "1", waits: { approvals: "1", gathering: "2" } },
    { ...figures, status: "done", open: "0", done: "2" },
    { ...figures, status: "paused", open: "0", done: "2" },
  ]);
});

test("reports a scheduled correlation before its first artifact", async () => {
  off.set("c", { scheduled: 3 });
  progress.correlationChanged("acme", "c");
  await tick();
  expect(reports).toMatchObject([
    ["acme", "c", { status: "waiting", artifacts: "0", waits: { scheduled: "3" } }],
  ]);
});

test("reads an agent once more after a report, as another server may have reported less", async () => {
  totals.set("reviewer", { done: 1, retried: 0, published: new Map() });
  progress.observer.settled(testTask("reviewer", artifact("c")), DONE, PLACE);
  await tick();
  totals.set("reviewer", { done: 5, retried: 0, published: new Map() });
  await tick(1_000);
  await tick(1_000);
  await tick(60_000);
  expect(agentReports.map(([, , { done }]) => done)).toEqual(["1", "5"]);
});

test("reports the remaining changes when it stops", async () => {
  count("c", 0, 1);
  progress.observer.published([artifact("c")]);
  await progress.stop();
  expect(reports).toHaveLength(1);
});

test("remembers a bounded number of correlations, and forgets those first that wait for nothing", async () => {
  await progress.stop();
  progress = await start({ remember: 3 });
  await tick();
  for (const id of ["a", "b", "c", "d"]) count(id, 0, 1);
  progress.observer.published([artifact("a"), artifact("b"), artifact("c")]);
  await tick();
  progress.observer.published([artifact("a"), artifact("d")]);
  await tick();
  expect(reports.map(([, id]) => id)).toEqual(["a", "b", "c", "d"]);
  // "b" was forgotten, so its earlier report is unknown.
  progress.observer.published([artifact("b")]);
  await tick();
  expect(reports.map(([, id]) => id)).toEqual(["a", "b", "c", "d", "b"]);
});
