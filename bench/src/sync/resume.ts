import { runSummaries } from "@khala/server";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { KhalaWriter } from "./programs/khala_writer.ts";
import type { SocketLoad } from "./programs/socket_load.ts";
import { mintTokens } from "./tokens.ts";

const { topic } = runSummaries;

/** Updates that every socket missed and may see, and later ones of another org that it may not. */
const MISSED = 200;
const FOREIGN = 2_000;

interface Resumed {
  readonly ms: number;
  readonly reads: number;
  readonly updates: number;
}

/** (d) Everybody comes back at once. */
export const resume: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const many = bench.quick ? 1_000 : 5_000;
  const { rounds } = bench;
  const few = await storm(bench, many / 10, rounds);
  const all = await storm(bench, many, rounds);
  const row = (title: string, sockets: number, results: readonly Resumed[]) => [
    title,
    figure(sockets),
    range(spread(results.map(({ reads }) => reads))),
    range(spread(results.map(({ ms }) => ms))),
    range(spread(results.map(({ updates }) => updates))),
  ];
  const reads = (results: readonly Resumed[]) => spread(results.map((result) => result.reads)).median;
  return {
    title: `(d) ${figure(many)} sockets resuming at once from the past`,
    how: [
      `sockets of as many different people, connected and joined, subscribe in the same instant with a cursor from before the ${MISSED} updates that each of them missed and the ${figure(FOREIGN)} rows of another org after those`,
      "reads: statements that read the journal for this gateway and topic, counted in the gateway's database client, from the first subscribe until the last socket is live",
      "in memory: the gateway was there when the updates came; from the journal: it was restarted since, and has only the newest 1,000 rows in memory",
    ],
    tables: [
      {
        head: [
          "missed updates are",
          "sockets",
          "journal reads",
          "ms until the last is live",
          "updates to each",
        ],
        rows: [
          row("in memory", many / 10, few.memory),
          row("in memory", many, all.memory),
          row("in the journal", many / 10, few.journal),
          row("in the journal", many, all.journal),
        ],
      },
    ],
    bars: [
      { name: "journal reads in memory, whatever the number of sockets", got: reads(all.memory), most: 2 },
      {
        name: "journal reads from the journal, ten times the sockets ÷ one time",
        got: reads(all.journal) / reads(few.journal),
        most: 2,
      },
    ],
    otherLoad: otherLoad(),
  };
};

async function storm({ postgres }: Bench, sockets: number, rounds: number) {
  const results = { memory: [] as Resumed[], journal: [] as Resumed[] };
  const url = await postgres.create("khala");
  await using writer = startProgram<KhalaWriter>(program("khala_writer"));
  await writer.call("open", { url });
  for (let round = 0; round < rounds; round++) {
    await using load = startProgram<SocketLoad>(program("socket_load"));
    {
      await using gateway = startProgram<GatewayProgram>(program("gateway"));
      const { port } = await gateway.call("open", { url });
      const tokens = await mintTokens(sockets);
      await load.call("khala", { port, tokens });
      await load.call("subscribe", { topic });
      await load.call("disconnect", undefined);
      await writer.call("write", { documents: MISSED, foreign: false });
      await writer.call("write", { documents: FOREIGN, foreign: true });
      results.memory.push(await comeBack(gateway, load, port, tokens));
      await load.call("disconnect", undefined);
    }
    await using restarted = startProgram<GatewayProgram>(program("gateway"));
    const { port } = await restarted.call("open", { url });
    const tokens = await mintTokens(sockets);
    results.journal.push(await comeBack(restarted, load, port, tokens));
  }
  return results;
}

async function comeBack(
  gateway: { call(method: "reads", params: undefined): Promise<number> },
  load: ReturnType<typeof startProgram<SocketLoad>>,
  port: number,
  tokens: readonly string[],
): Promise<Resumed> {
  await load.call("khala", { port, tokens });
  const before = await gateway.call("reads", undefined);
  const { ms, updates } = await load.call("resume", { topic });
  return { ms, updates, reads: (await gateway.call("reads", undefined)) - before };
}
