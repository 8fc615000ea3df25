import { runSummaries } from "@khala/server";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { type Bar, range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import { startCentrifugo } from "./centrifugo.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { LatencyLoad, LatencyResult } from "./programs/latency_load.ts";
import { mintTokens } from "./tokens.ts";

const SOCKETS = 1_000;
const RATE = 1_000;

/** (c) From the write to the one client that may see it, commit included. */
export const latency: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const results = new Map<string, LatencyResult[]>([["Khala", await khala(bench)]]);
  if (bench.centrifugo) {
    results.set("Centrifugo 6, Postgres broker, use_notify, num_shards 1", await centrifugo(bench, 1));
    results.set("Centrifugo 6, Postgres broker, use_notify, default shards", await centrifugo(bench));
  }
  const of = (name: string, what: keyof LatencyResult): Spread =>
    spread(results.get(name)!.map((result) => result[what]));
  const names = [...results.keys()];
  const bars: Bar[] = names.slice(1).flatMap((name) =>
    (["p50", "p99"] as const).map((what) => ({
      name: `${what}, Khala ÷ ${name}`,
      got: of("Khala", what).median / of(name, what).median,
      most: 1,
    })),
  );
  return {
    title: "(c) Commit → client at 1,000 sockets and 1,000 updates/s",
    how: [
      "each update is for one subject of 1,000 (an audience of one; with Centrifugo a channel each); updates are sent on time whether or not earlier ones have arrived",
      "from the call that writes to the frame at the client, the durable commit included on both sides; the writer is not the gateway's process",
    ],
    tables: [
      {
        head: ["server", "p50 ms", "p99 ms", "max ms", "updates/s"],
        rows: names.map((name) => [
          name,
          range(of(name, "p50")),
          range(of(name, "p99")),
          range(of(name, "max")),
          range(of(name, "perSecond")),
        ]),
      },
    ],
    bars,
    otherLoad: otherLoad(),
  };
};

async function khala({ postgres, rounds, quick }: Bench): Promise<LatencyResult[]> {
  await using gateway = startProgram<GatewayProgram>(program("gateway"));
  await using load = startProgram<LatencyLoad>(program("latency_load"));
  const url = await postgres.create("khala");
  const { port } = await gateway.call("open", { url });
  const tokens = await mintTokens(SOCKETS);
  await load.call("open", { kind: "khala", port, sockets: SOCKETS, tokens, url, topic: runSummaries.topic });
  return await repeat(load, rounds, quick);
}

async function centrifugo({ postgres, rounds, quick }: Bench, shards?: number): Promise<LatencyResult[]> {
  const dsn = await postgres.create("empty");
  await using server = await startCentrifugo({
    type: "postgres",
    dsn,
    ...(shards !== undefined && { shards }),
  });
  await using load = startProgram<LatencyLoad>(program("latency_load"));
  await load.call("open", { kind: "centrifugo", port: server.port, sockets: SOCKETS });
  return await repeat(load, rounds, quick);
}

async function repeat(
  load: { call(method: "run", params: { rate: number; ms: number }): Promise<LatencyResult> },
  rounds: number,
  quick: boolean,
): Promise<LatencyResult[]> {
  const ms = quick ? 1_500 : 4_000;
  const results: LatencyResult[] = [];
  await load.call("run", { rate: RATE, ms: 1_000 });
  for (let round = 0; round < rounds; round++) results.push(await load.call("run", { rate: RATE, ms }));
  return results;
}
