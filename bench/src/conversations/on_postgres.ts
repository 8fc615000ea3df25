import { watchOtherLoad } from "../kit/proc.ts";
import type { PartRunner } from "./bench.ts";
import { how, latencyTable, tokensToSockets } from "./latency.ts";
import { resumeHow, resumeTable } from "./resume.ts";
import { resumeKhala } from "./resume_khala.ts";

/** (d) What (a) and (c) are without a Redis. */
export const onPostgres: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const tokens = await tokensToSockets(bench);
  const resumed = await resumeKhala(bench);
  return {
    title: "(d) (a) and (c) on PostgreSQL: 3,000 tokens/s to sockets, and resume of a 1 MB answer",
    how: [...how, "every append is committed, and waits for the disk, before anybody is told", ...resumeHow],
    tables: [latencyTable(tokens), resumeTable([resumed])],
    bars: [],
    otherLoad: otherLoad(),
  };
};
