import { startRedis } from "../conversations/redis.ts";
import { watchOtherLoad } from "../kit/proc.ts";
import { mostStolen } from "../kit/quiet.ts";
import { figure, range } from "../kit/report.ts";
import { CONCURRENCY, type PartRunner } from "./bench.ts";
import { drainRates, measureSteady, STEADY_HEAD, spreadOf, steadyCells } from "./rates.ts";

/** (c) BullMQ, for orientation. */
export const redisQueue: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  const backlog = bench.quick ? 2_000 : 20_000;
  await using redis = await startRedis();
  const steady = await measureSteady(bench, "bullmq", redis.url, redis.pid);
  const drained = await drainRates(bench, { program: "bullmq", where: redis.url, count: backlog });
  return {
    title: "(c) For orientation: BullMQ on Redis",
    how: [
      `as in (b): addBulk in calls of 100, one worker with concurrency ${CONCURRENCY}, completed jobs removed; a backlog of ${figure(backlog)}`,
      "Redis syncs its file every second, so that what was acknowledged in the last one can be lost: not what (a) and (b) promise",
    ],
    tables: [
      {
        head: ["tasks", ...STEADY_HEAD, "a backlog, per second"],
        rows: [["BullMQ", ...steadyCells(steady), range(spreadOf(drained))]],
      },
    ],
    bars: [],
    otherLoad: otherLoad(),
    stolen: mostStolen(steady, drained),
  };
};
