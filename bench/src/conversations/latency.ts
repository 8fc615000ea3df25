import { SCOPES } from "@khala/contracts";
import { cpuSeconds, treeCpuSeconds, watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { type Bar, figure, range, type Table } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { mintTokens } from "../sync/tokens.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import type { Latency } from "./latencies.ts";
import type { BareAppend } from "./programs/bare_append.ts";
import type { BareForwarder } from "./programs/bare_forwarder.ts";
import type { BareLoad } from "./programs/bare_load.ts";
import type { BareSubscriber } from "./programs/bare_subscriber.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { TokenLoad } from "./programs/token_load.ts";
import { type CommandCounts, calls, type RedisServer, startRedis } from "./redis.ts";

const CONVERSATIONS = 2_000;
const RATE = 3_000;

/** Percent of one core. */
interface BareSample extends Latency {
  readonly storePercent: number;
  readonly gatewayPercent?: number;
}

interface Sample extends BareSample {
  readonly perAppend: PerAppend;
  readonly connections: number;
}

interface PerAppend {
  /** Scripts that Redis was sent by all. */
  readonly scripts: number;
  /** Commands of any kind that the writer sent. */
  readonly writer: number;
  readonly bookmarks: number;
  readonly polls: number;
}

/** What was measured on one store: by how many conversations were read. */
export interface Measured {
  readonly few: readonly Sample[];
  readonly many: readonly Sample[];
  /** Redis connections of the gateway before the first conversation. */
  readonly connectionsAtFirst: number;
  readonly idle: number;
}

/** (a) From the append to the socket. */
export const latency: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const bare = await bareLoop(bench);
  const hop = await bareHop(bench);
  await using redis = await startRedis();
  const khala = await tokensToSockets(bench, redis);
  // Before and after, so that a machine that becomes slower or faster meanwhile favours nobody.
  hop.push(...(await bareHop(bench)));
  bare.push(...(await bareLoop(bench)));
  const roundTrips = (samples: readonly Sample[]) =>
    spread(samples.map(({ perAppend }) => perAppend.writer)).median;
  const titles = [titleOf(CONVERSATIONS), titleOf(khala.idle)] as const;
  const bars: Bar[] = [khala.few, khala.many].flatMap((samples, i) => [
    { name: `${titles[i]}: p50, Khala ÷ the bare loop`, got: p50Of(samples) / p50Of(bare), most: 1.3 },
    {
      name: `${titles[i]}: p50, Khala ÷ the bare loop and a socket`,
      got: p50Of(samples) / p50Of(hop),
      most: 1.3,
    },
    {
      name: `${titles[i]}: Redis round trips of an append`,
      // Three digits: a ping now and then is no part of an append.
      got: Math.round(roundTrips(samples) * 1_000) / 1_000,
      most: 1,
    },
  ]);
  bars.push({
    name: `Redis connections of a server that are more with ${figure(khala.idle)} conversations than with none`,
    got: Math.max(...khala.many.map(({ connections }) => connections)) - khala.connectionsAtFirst,
    most: 0,
  });
  return {
    title: `(a) Token → socket at ${figure(RATE)} tokens/s`,
    how: [
      ...how,
      "the bare loop: the same script on the same kind of connection, and one subscriber to all 2,000 channels in another process, which does nothing but look at the time; no server, no sockets; measured before and after Khala",
      "the bare loop and a socket: the subscriber sends what it hears to 2,000 sockets with `ws`, and does nothing else; their clients are in the writer's process, as Khala's are. The same ends as Khala's, and what a third process costs on these cores",
      "round trips: commands that the writer sent; scripts are those of the gateway and the writer, and one moves up to 16 bookmarks or looks at up to 16 conversations for news that nobody told of",
    ],
    tables: [latencyTable(khala, { loop: bare, hop }), redisTable(khala)],
    bars,
    otherLoad: otherLoad(),
  };
};

const p50Of = (samples: readonly Latency[]) => spread(samples.map(({ p50 }) => p50)).median;

const titleOf = (conversations: number) =>
  conversations === CONVERSATIONS
    ? `${figure(CONVERSATIONS)} conversations`
    : `${figure(conversations)} conversations, ${figure(CONVERSATIONS)} of them busy`;

/** How it is measured on any store. */
export const how = [
  `${figure(CONVERSATIONS)} conversations of as many people, a socket each; tokens are appended to one after the other, on time whether or not earlier ones have arrived, through the library's log in a process that is not the gateway`,
  "from the call that appends to the frame at the client; further conversations have a reader and no socket",
];

/** Latency and CPU, as a table; beside what was measured without Khala, if it was. */
export function latencyTable(
  khala: Measured,
  bare?: { readonly loop: readonly BareSample[]; readonly hop: readonly BareSample[] },
): Table {
  const row = (title: string, samples: readonly BareSample[]) => {
    const gateway = samples.flatMap(({ gatewayPercent }) => gatewayPercent ?? []);
    return [
      title,
      ...(bare ? [figure(p50Of(samples) / p50Of(bare.loop))] : []),
      ...(["p50", "p99", "max", "storePercent"] as const).map((what) =>
        range(spread(samples.map((sample) => sample[what]))),
      ),
      gateway.length > 0 ? range(spread(gateway)) : "–",
    ];
  };
  const store = bare ? "Redis" : "PostgreSQL";
  return {
    head: [
      "",
      ...(bare ? ["p50 ÷ the bare loop"] : []),
      "p50 ms",
      "p99 ms",
      "max ms",
      `${store} CPU, % of a core`,
      "gateway CPU, % of a core",
    ],
    rows: [
      ...(bare
        ? [
            row(`the bare loop, ${titleOf(CONVERSATIONS)}`, bare.loop),
            row(`the bare loop and a socket, ${titleOf(CONVERSATIONS)}`, bare.hop),
          ]
        : []),
      row(`Khala, ${titleOf(CONVERSATIONS)}`, khala.few),
      row(`Khala, ${titleOf(khala.idle)}`, khala.many),
    ],
  };
}

function redisTable(khala: Measured): Table {
  const row = (conversations: number, samples: readonly Sample[]) => [
    titleOf(conversations),
    ...(["scripts", "writer", "bookmarks", "polls"] as const).map((what) =>
      range(spread(samples.map(({ perAppend }) => perAppend[what]))),
    ),
    `${khala.connectionsAtFirst} → ${Math.max(...samples.map(({ connections }) => connections))}`,
  ];
  return {
    head: [
      "Redis, per append",
      "scripts",
      "the writer's commands",
      "bookmarks moved",
      "conversations polled or read",
      "connections of the server, at first → now",
    ],
    rows: [row(CONVERSATIONS, khala.few), row(khala.idle, khala.many)],
  };
}

async function bareLoop({ rounds, quick }: Bench): Promise<BareSample[]> {
  await using redis = await startRedis();
  await using append = startProgram<BareAppend>(program("bare_append"));
  await using subscriber = startProgram<BareSubscriber>(program("bare_subscriber"));
  await append.call("open", { url: redis.url });
  await subscriber.call("open", { url: redis.url, conversations: CONVERSATIONS });
  const run = async (ms: number): Promise<BareSample> => {
    const percent = watchPercent(() => cpuSeconds(redis.pid));
    const expected = await append.call("run", { conversations: CONVERSATIONS, rate: RATE, ms });
    const storePercent = percent();
    return { ...(await subscriber.call("take", { expected })), storePercent };
  };
  await run(1_000);
  const samples: BareSample[] = [];
  for (let round = 0; round < rounds; round++) samples.push(await run(quick ? 1_500 : 4_000));
  return samples;
}

/** The least that stands between the writer and a socket in another process. */
async function bareHop({ rounds, quick }: Bench): Promise<BareSample[]> {
  await using redis = await startRedis();
  await using forwarder = startProgram<BareForwarder>(program("bare_forwarder"));
  await using load = startProgram<BareLoad>(program("bare_load"));
  const { port } = await forwarder.call("open", { url: redis.url, conversations: CONVERSATIONS });
  await load.call("open", { url: redis.url });
  await load.call("connect", { port, sockets: CONVERSATIONS });
  const run = async (ms: number): Promise<BareSample> => {
    const storePercent = watchPercent(() => cpuSeconds(redis.pid));
    const gatewayPercent = watchPercent(() => cpuSeconds(forwarder.pid));
    const times = await load.call("run", { rate: RATE, ms });
    return { ...times, storePercent: storePercent(), gatewayPercent: gatewayPercent() };
  };
  await run(1_000);
  const samples: BareSample[] = [];
  for (let round = 0; round < rounds; round++) samples.push(await run(quick ? 1_500 : 4_000));
  return samples;
}

/** Measures on Redis, or without one on PostgreSQL. */
export async function tokensToSockets(bench: Bench, redis?: RedisServer): Promise<Measured> {
  const { postgres, rounds, quick } = bench;
  const idle = quick ? 4_000 : 10_000;
  await using gateway = startProgram<GatewayProgram>(program("gateway"));
  await using load = startProgram<TokenLoad>(program("token_load"));
  const store = { url: await postgres.create("khala"), ...(redis && { redis: redis.url }) };
  const connections = async () => (redis ? await redis.khalaConnections() : 0);
  const { port } = await gateway.call("open", { store });
  const connectionsAtFirst = await connections();
  await load.call("open", { store });
  const ofLoad = (await connections()) - connectionsAtFirst;
  await load.call("connect", { port, tokens: await mintTokens(CONVERSATIONS, SCOPES.chat) });

  const run = async (ms: number): Promise<Sample> => {
    const storePercent = watchPercent(() => (redis ? cpuSeconds(redis.pid) : treeCpuSeconds(postgres.pid)));
    const gatewayPercent = watchPercent(() => cpuSeconds(gateway.pid));
    const before = await redis?.commands();
    const { sent, commands, ...times } = await load.call("run", { rate: RATE, ms });
    const after = await redis?.commands();
    return {
      ...times,
      storePercent: storePercent(),
      gatewayPercent: gatewayPercent(),
      perAppend: { ...scriptsPer(sent, before, after), writer: commands / sent },
      connections: (await connections()) - ofLoad,
    };
  };
  const measure = async () => {
    await run(1_000);
    await postgres.checkpoint();
    const samples: Sample[] = [];
    for (let round = 0; round < rounds; round++) samples.push(await run(quick ? 1_500 : 4_000));
    return samples;
  };
  const few = await measure();
  await gateway.call("attach", { from: CONVERSATIONS, count: idle - CONVERSATIONS });
  return { few, many: await measure(), connectionsAtFirst, idle };
}

/** What ran can be told by what scripts call: an append publishes, and only a bookmark asks for the groups. */
function scriptsPer(
  appends: number,
  before?: CommandCounts,
  after?: CommandCounts,
): Omit<PerAppend, "writer"> {
  if (!before || !after) return { scripts: Number.NaN, bookmarks: Number.NaN, polls: Number.NaN };
  const count = (command: string) => calls(before, after, command) / appends;
  return {
    scripts: count("evalsha") + count("eval"),
    bookmarks: count("xinfo|groups"),
    polls: count("hmget") - count("publish"),
  };
}

/** Percent of a core that were used since, by a count of CPU seconds. */
function watchPercent(used: () => number): () => number {
  const start = { at: performance.now(), used: used() };
  return () => ((used() - start.used) / (performance.now() - start.at)) * 100_000;
}
