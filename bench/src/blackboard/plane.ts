import { redisVersion } from "../conversations/redis.ts";
import { packageVersion } from "../kit/package_version.ts";
import type { Plane } from "../kit/plane.ts";
import { startPostgres } from "../kit/postgres.ts";
import type { PartRunner } from "./bench.ts";
import { startKafka } from "./kafka.ts";
import { kafkaFlow } from "./kafka_flow.ts";
import { postgresQueues } from "./postgres_queues.ts";
import { redisQueue } from "./redis_queue.ts";
import { smoke } from "./smoke.ts";
import { startUp } from "./start_up.ts";

const PARTS: Readonly<Record<string, { readonly run: PartRunner; readonly needs?: "Kafka" | "Redis" }>> = {
  a: { run: kafkaFlow, needs: "Kafka" },
  b: { run: postgresQueues },
  c: { run: redisQueue, needs: "Redis" },
  d: { run: startUp, needs: "Kafka" },
  e: { run: smoke },
};

const COMPARED = ["pg", "pg-boss", "graphile-worker", "bullmq"];

/** The blackboard plane: work on its way through agents. */
export const blackboardPlane: Plane = {
  parts: Object.keys(PARTS),
  results: "RESULTS_BLACKBOARD.md",
  async open(effort, stack) {
    const redis = redisVersion();
    const kafka = await startKafka();
    const missing = new Map<string, string>();
    if (!redis) missing.set("Redis", "redis-server is not installed");
    if (typeof kafka === "string") missing.set("Kafka", kafka);
    else stack.use(kafka);
    for (const [name, reason] of missing)
      console.error(`!! No ${name}: ${reason}. The parts that need it are SKIPPED.\n`);
    const postgres = stack.use(await startPostgres());
    const bootstrap = typeof kafka === "string" ? undefined : kafka.bootstrap;
    return {
      versions: [
        `Node ${process.version}`,
        bootstrap
          ? "Kafka 4.1.1 (one broker, its own defaults for the disk)"
          : "Kafka: NONE, its parts are skipped",
        postgres.version,
        redis ? `${redis} (appendonly, synced every second)` : "Redis: NOT INSTALLED, its part is skipped",
        ...COMPARED.map((name) => `${name} ${packageVersion(name)}`),
      ],
      async measure(part) {
        const { run, needs = "" } = PARTS[part]!;
        const reason = missing.get(needs);
        if (reason === undefined)
          return await run({ ...effort, postgres, ...(bootstrap && { kafka: bootstrap }) });
        return {
          title: `(${part}) not measured`,
          how: [`SKIPPED: no ${needs}, ${reason}`],
          tables: [],
          bars: [],
        };
      },
    };
  },
};
