import { setTimeout } from "node:timers/promises";
import { SCOPES } from "@khala/contracts";
import { residentBytes, watchOtherLoad } from "../kit/proc.ts";
import { type Program, startProgram } from "../kit/program.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { mintTokens } from "../sync/tokens.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { SocketLoad } from "./programs/socket_load.ts";
import { startRedis } from "./redis.ts";

/** How long a server may settle before its memory is read. */
const SETTLE_MS = 2_000;

/** Kilobytes for each. */
interface Growth {
  readonly gateway: number;
  readonly redis: number;
}

interface Fresh {
  readonly gateway: Program<GatewayProgram>;
  readonly load: Program<SocketLoad>;
  readonly port: number;
}

/** (e) What an idle conversation and an idle socket cost in memory. */
export const memory: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const count = bench.quick ? 1_000 : 5_000;
  const tokens = await mintTokens(count, SCOPES.chat);
  const ways: Readonly<Record<string, (fresh: Fresh) => Promise<void>>> = {
    "a conversation that is read, without a socket": ({ gateway }) =>
      gateway.call("attach", { from: 0, count }),
    "a conversation that is read, with a socket": ({ load, port }) => load.call("apart", { port, tokens }),
    "a socket, all in one conversation": ({ load, port }) =>
      load.call("together", { port, token: tokens[0]!, sockets: count }),
  };
  const results = new Map<string, Growth[]>(Object.keys(ways).map((name) => [name, []]));
  for (let round = 0; round < bench.rounds; round++)
    for (const [name, open] of Object.entries(ways))
      results.get(name)!.push(await growth(bench, count, open));
  return {
    title: `(e) Memory per idle conversation and per socket, ${figure(count)} of them`,
    how: [
      "growth of a fresh gateway's resident memory, divided: what the first ones bring with them is counted too",
      `read ${SETTLE_MS / 1_000} s after the last one came, after a garbage collection; a fresh gateway and a fresh Redis for every run`,
      "conversations are empty and belong to different people; Redis: growth of its used memory, stream, group, metadata and the server's subscription",
    ],
    tables: [
      {
        head: ["KB for each, median [min–max]", "gateway", "Redis"],
        rows: [...results].map(([name, all]) => [
          name,
          range(spread(all.map(({ gateway }) => gateway))),
          range(spread(all.map(({ redis }) => redis))),
        ]),
      },
    ],
    bars: [],
    otherLoad: otherLoad(),
  };
};

async function growth(
  { postgres }: Bench,
  count: number,
  open: (fresh: Fresh) => Promise<void>,
): Promise<Growth> {
  await using redis = await startRedis();
  await using gateway = startProgram<GatewayProgram>(program("gateway"), ["--expose-gc"]);
  await using load = startProgram<SocketLoad>(program("socket_load"));
  const store = { url: await postgres.create("khala"), redis: redis.url };
  const { port } = await gateway.call("open", { store });
  const used = async () => {
    await setTimeout(SETTLE_MS);
    await gateway.call("collect", undefined);
    return { gateway: residentBytes(gateway.pid), redis: await redis.usedBytes() };
  };
  const before = await used();
  await open({ gateway, load, port });
  const after = await used();
  await load.call("check", undefined);
  return {
    gateway: (after.gateway - before.gateway) / count / 1_024,
    redis: (after.redis - before.redis) / count / 1_024,
  };
}
