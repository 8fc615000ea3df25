import { setTimeout } from "node:timers/promises";
import { freePort } from "../kit/free_port.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { mostStolen, type Window } from "../kit/quiet.ts";
import { figure, range } from "../kit/report.ts";
import { percentile, spread } from "../kit/stats.ts";
import { mintOrgTokens } from "../sync/tokens.ts";
import { BATCH, type Bench, CALL, type PartRunner, payload, program } from "./bench.ts";
import { openFlow, type Steady } from "./flow.ts";
import { AT_A_TIME, AWAITS_MS, FAN, HOPS, type HopsWhere, ORGS, type Shape } from "./hops.ts";
import type { IdleServer } from "./programs/idle_server.ts";
import { measureInTurns, medianRatio, turnsOf } from "./rates.ts";

const SYSTEMS = {
  khala: { title: "Khala", program: "hops_khala", tables: "khala" },
  pgBoss: { title: "pg-boss", program: "hops_pg_boss", tables: "empty" },
  graphile: { title: "graphile-worker", program: "hops_graphile", tables: "empty" },
} as const;
type System = keyof typeof SYSTEMS;
const NAMES = Object.keys(SYSTEMS) as System[];

type Turns = readonly Window<Record<System, Steady>>[];

const TITLES: Readonly<Record<Shape, string>> = {
  pipeline: "f1, three agents in a row",
  fanout: `f2, a fan-out of ${FAN} and a join`,
  waiting: `f3, three agents that await ${AWAITS_MS} ms`,
  single: "one agent, uncorrelated",
};
const SHAPES = Object.keys(TITLES) as Shape[];

/** Khala's hops per second, as a multiple of the other's. */
const BARS: readonly { shape: Shape; other: Exclude<System, "khala">; least: number }[] = [
  { shape: "pipeline", other: "pgBoss", least: 1.5 },
  { shape: "pipeline", other: "graphile", least: 3 },
  { shape: "single", other: "pgBoss", least: 1 },
  { shape: "single", other: "graphile", least: 1 },
];
const MOST_IDLE_MS = 10;

/** (f) Work as agents have it, on a whole server. */
export const wholeServer: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const turns = {} as Record<Shape, Turns>;
  for (const shape of SHAPES) turns[shape] = await measure(bench, shape);
  const idle = await idleLatencies(bench);
  const ratio = (shape: Shape, other: System) =>
    medianRatio(turns[shape], (turn) => turn.khala.rate / turn[other].rate);
  return {
    title: "(f) A whole server: correlated work, hops per second",
    how: [
      `Khala: createKhala with its gateway, documents and the embedded PostgreSQL, in one process; publishers post ${CALL.size} artifacts per HTTP call, ${CALL.atOnce} calls at a time, from another process, in turn for ${ORGS} orgs. f1 to f3: every artifact has a correlation id of its own and one of 1,000 partition keys, whose order Khala keeps and the others do not`,
      `all: payloads of 250 bytes, the same hops, each counted when its handler has run; ${AT_A_TIME} tasks at a time for each of Khala's agents. A hop is one hand-over to a handler: ${SHAPES.map((shape) => `${HOPS[shape]} per item in "${TITLES[shape]}"`).join(", ")}`,
      `pg-boss: a queue for each agent, four loops of fetch with batchSize ${BATCH}, and one transaction that inserts into the next queue and completes the batch (two loops of ${AT_A_TIME / 2} where handlers await)`,
      `graphile-worker: a task for each agent, addJob for the next one, which is a commit of its own and not the one that ends the job, and the settings of its page on performance (${AT_A_TIME * 3} concurrent jobs where handlers await)`,
      "the join of both is a row that counts, updated by the handler; it keeps no results, where Khala's does",
      "the three take turns, each while the others rest, on databases of their own; a ratio is the median of those of each round",
      "single artifact: posted to an idle server, from before the call until its agent runs",
    ],
    tables: [
      {
        head: [
          "hops per second",
          ...NAMES.map((name) => SYSTEMS[name].title),
          "÷ pg-boss",
          "÷ graphile-worker",
        ],
        rows: SHAPES.map((shape) => [
          TITLES[shape],
          ...NAMES.map((name) => range(spread(turnsOf(turns[shape], name).map(({ value }) => value.rate)))),
          figure(ratio(shape, "pgBoss")),
          figure(ratio(shape, "graphile")),
        ]),
      },
      {
        head: ["CPU µs per hop: publisher, worker, store", ...NAMES.map((name) => SYSTEMS[name].title)],
        rows: SHAPES.map((shape) => [TITLES[shape], ...NAMES.map((name) => micros(turns[shape], name))]),
      },
      {
        head: ["a single artifact", "p50 ms", "p95 ms"],
        rows: [["Khala, idle", figure(percentile(idle, 0.5)), figure(percentile(idle, 0.95))]],
      },
    ],
    bars: [
      ...BARS.map(({ shape, other, least }) => ({
        name: `${TITLES[shape]}, Khala ÷ ${SYSTEMS[other].title}`,
        got: ratio(shape, other),
        least,
      })),
      { name: "a single artifact on an idle board, p50 ms", got: percentile(idle, 0.5), most: MOST_IDLE_MS },
    ],
    otherLoad: otherLoad(),
    stolen: mostStolen(...SHAPES.map((shape) => turns[shape])),
  };
};

/** Several times as long as an item takes from the first agent to the last. */
const WINDOW_MS = 4_000;

/** Items that wait at any time: enough that nobody is idle, and so few that a turn ends soon. */
function aheadOf(shape: Shape, name: System): number {
  if (shape === "fanout") return name === "pgBoss" ? 300 : 100;
  return name === "graphile" ? 1_000 : 3_000;
}

async function measure(bench: Bench, shape: Shape): Promise<Turns> {
  const { postgres } = bench;
  // A short look needs two rounds only where there is a bar.
  const hasBar = BARS.some((bar) => bar.shape === shape);
  const effort = bench.quick ? { ...bench, rounds: hasBar ? bench.rounds : 1 } : bench;
  await using stack = new AsyncDisposableStack();
  const urls = {} as Record<System, string>;
  const flows = {} as Record<System, Awaited<ReturnType<typeof openFlow>>>;
  stack.defer(async () => {
    for (const url of Object.values(urls)) await postgres.drop(url);
  });
  for (const name of NAMES) {
    const url = await postgres.create(SYSTEMS[name].tables);
    urls[name] = url;
    const where: HopsWhere = { url, shape, port: await freePort() };
    const load = { ahead: aheadOf(shape, name), begun: shape === "fanout" ? 50 : 500 };
    flows[name] = stack.use(await openFlow(effort, SYSTEMS[name].program, where, postgres.pid, load));
    await flows[name].rest();
  }
  return await measureInTurns(effort, flows, {
    ms: WINDOW_MS,
    before: () => postgres.checkpoint(),
    meanwhile: (name) => postgres.vacuum(urls[name]),
  });
}

function micros(turns: Turns, name: System): string {
  const median = (what: keyof Steady) =>
    figure(spread(turnsOf(turns, name).map(({ value }) => value[what])).median);
  return `${median("publisherMicros")}, ${median("workerMicros")}, ${median("storeMicros")}`;
}

const PAUSE_MS = 20;

/** Milliseconds from the call to the agent, one artifact at a time, sorted. */
async function idleLatencies({ postgres, quick }: Bench): Promise<number[]> {
  const url = await postgres.create("khala");
  const took: number[] = [];
  {
    await using server = startProgram<IdleServer>(program("idle_server"));
    const { port } = await server.call("open", { url });
    const [token] = (await mintOrgTokens(1, "blackboard:write")).values();
    const count = quick ? 50 : 300;
    // The first tenth warms up what has never run.
    for (let n = -count / 10; n < count; n++) {
      const from = process.hrtime.bigint();
      const answer = await fetch(`http://127.0.0.1:${port}/blackboard/v1/artifacts`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ type: "A", payload: payload(n), correlation_id: `idle-${n}` }),
      });
      if (answer.status !== 201) throw new Error(`Publishing was answered with ${answer.status}.`);
      await answer.text();
      const at = await server.call("ran", undefined);
      if (n >= 0) took.push(Number(at - from) / 1e6);
      await setTimeout(PAUSE_MS);
    }
  }
  await postgres.drop(url);
  return took.sort((a, b) => a - b);
}
