import { setTimeout } from "node:timers/promises";
import { runSummaries } from "@khala/server";
import { residentBytes, watchOtherLoad } from "../kit/proc.ts";
import { type Program, startProgram } from "../kit/program.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import { startCentrifugo } from "./centrifugo.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { SocketLoad } from "./programs/socket_load.ts";
import { mintTokens } from "./tokens.ts";

/** Kilobytes per socket. */
interface PerSocket {
  readonly idle: number;
  readonly subscribed: number;
}

/** How long a server may settle before its memory is read. */
const SETTLE_MS = 2_000;

/** (e) What an idle socket costs in memory. */
export const memory: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const sockets = bench.quick ? 2_000 : 5_000;
  const { rounds } = bench;
  const results = new Map<string, PerSocket[]>([["Khala", []]]);
  if (bench.centrifugo) results.set("Centrifugo 6", []);
  for (let round = 0; round < rounds; round++) {
    results.get("Khala")!.push(await khala(bench, sockets));
    results.get("Centrifugo 6")?.push(await centrifugo(sockets));
  }
  const of = (name: string, what: keyof PerSocket): Spread =>
    spread(results.get(name)!.map((result) => result[what]));
  const bar = (name: string, what: keyof PerSocket) => ({
    name,
    got: of("Khala", what).median / of("Centrifugo 6", what).median,
    most: 1,
  });
  return {
    title: `(e) Memory per idle socket, ${sockets.toLocaleString("en")} of them`,
    how: [
      "growth of a fresh server's resident memory, divided by the sockets: what the first ones bring with them is counted too",
      `read ${SETTLE_MS / 1_000} s after the last socket came; of Khala after a garbage collection, which Go does by itself`,
      "a fresh server for every run",
      "Khala: each socket belongs to another person and has joined `sync:v1`; subscribed: to one topic",
    ],
    tables: [
      {
        head: ["KB per socket, median [min–max]", "connected", "with one subscription"],
        rows: [...results.keys()].map((name) => [
          name,
          range(of(name, "idle")),
          range(of(name, "subscribed")),
        ]),
      },
    ],
    bars: bench.centrifugo
      ? [bar("connected, Khala ÷ Centrifugo", "idle"), bar("subscribed, Khala ÷ Centrifugo", "subscribed")]
      : [],
    otherLoad: otherLoad(),
  };
};

async function khala({ postgres }: Bench, sockets: number): Promise<PerSocket> {
  const url = await postgres.create("khala");
  return {
    idle: await khalaSockets(url, sockets, false),
    subscribed: await khalaSockets(url, sockets, true),
  };
}

async function khalaSockets(url: string, sockets: number, subscribed: boolean): Promise<number> {
  await using gateway = startProgram<GatewayProgram>(program("gateway"), ["--expose-gc"]);
  const { port } = await gateway.call("open", { url });
  const tokens = await mintTokens(sockets);
  return await growth(sockets, gateway.pid, {
    settle: () => gateway.call("collect", undefined),
    async connect(load) {
      await load.call("khala", { port, tokens });
      if (subscribed) await load.call("subscribe", { topic: runSummaries.topic });
    },
  });
}

async function centrifugo(sockets: number): Promise<PerSocket> {
  return { idle: await centrifugoSockets(sockets), subscribed: await centrifugoSockets(sockets, "bench") };
}

async function centrifugoSockets(sockets: number, channel?: string): Promise<number> {
  await using server = await startCentrifugo({ type: "memory" });
  const { port } = server;
  return await growth(sockets, server.pid, {
    settle: async () => {},
    connect: (load) => load.call("centrifugo", { port, sockets, ...(channel && { channel }) }),
  });
}

interface Steps {
  settle(): Promise<void>;
  connect(load: Program<SocketLoad>): Promise<void>;
}

/** Kilobytes per socket by which a fresh server grows. */
async function growth(sockets: number, pid: number, { settle, connect }: Steps): Promise<number> {
  await using load = startProgram<SocketLoad>(program("socket_load"));
  const resident = async () => {
    await setTimeout(SETTLE_MS);
    await settle();
    return residentBytes(pid);
  };
  const before = await resident();
  await connect(load);
  return ((await resident()) - before) / sockets / 1_024;
}
