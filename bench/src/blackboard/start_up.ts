import { residentBytes, watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { type BoardStore, type PartRunner, program } from "./bench.ts";
import type { BoardStart } from "./programs/board_start.ts";
import type { IndexFill } from "./programs/index_fill.ts";

/** In one call, so that none takes longer than a call may. */
const CHUNK = 100_000;
const MB = 1_000_000;

interface Sample {
  readonly seconds: number;
  readonly before: number;
  readonly after: number;
  readonly peak: number;
  /** Missing where there is nothing to get. */
  readonly getMs: number | undefined;
}

/** (d) How long a server starts, and what it takes in memory, with many artifacts on the board. */
export const startUp: PartRunner = async ({ postgres, kafka, rounds, quick }) => {
  const otherLoad = watchOtherLoad();
  const count = quick ? 20_000 : 1_000_000;
  const prefix = "d.";
  const url = await postgres.create("khala");
  const store: BoardStore = { url, kafka: { bootstrap: kafka!, prefix, transactions: true } };

  async function start(id?: string): Promise<Sample> {
    await using server = startProgram<BoardStart>(program("board_start"), ["--expose-gc"]);
    await server.call("ready", undefined);
    const before = residentBytes(server.pid);
    const ms = await server.call("open", store);
    const peak = await server.call("peak", undefined);
    const after = residentBytes(server.pid);
    const getMs = id === undefined ? undefined : await server.call("get", { id });
    return { seconds: ms / 1_000, before: before / MB, after: after / MB, peak: peak / MB, getMs };
  }

  // The first one makes the topics.
  const empty = [await start(), await start()].slice(1);
  let id = "";
  {
    await using filler = startProgram<IndexFill>(program("index_fill"));
    for (let filled = 0; filled < count; filled += CHUNK) {
      const part = { bootstrap: kafka!, topic: `${prefix}by_id`, count: Math.min(CHUNK, count - filled) };
      id = await filler.call("fill", part);
    }
  }
  const full: Sample[] = [];
  for (let round = 0; round < rounds; round++) full.push(await start(id));
  const row = (title: string, samples: readonly Sample[]) => [
    title,
    ...(["seconds", "before", "after", "peak"] as const).map((what) =>
      range(spread(samples.map((sample) => sample[what]))),
    ),
    samples.some(({ getMs }) => getMs !== undefined)
      ? range(spread(samples.map(({ getMs = Number.NaN }) => getMs)))
      : "–",
  ];
  return {
    title: `(d) Start-up with ${figure(count)} artifacts in by_id`,
    how: [
      "a server without its gateway, from the call that opens its blackboard until it serves: topics verified, the index read up to where it ended at the start, agents at work",
      "resident memory of the process with everything loaded and nothing opened, when it is open (after a garbage collection), and at its peak; the cache of bodies has 64 MB and fills later",
      "a get of an artifact whose body is not in memory reads it from the log",
    ],
    tables: [
      {
        head: ["", "seconds to ready", "MB before", "MB when ready", "MB at the peak", "first get ms"],
        rows: [row("an empty board", empty), row(`${figure(count)} artifacts`, full)],
      },
    ],
    bars: [],
    otherLoad: otherLoad(),
  };
};
