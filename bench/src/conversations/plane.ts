import { packageVersion } from "../kit/package_version.ts";
import type { Plane } from "../kit/plane.ts";
import { startPostgres } from "../kit/postgres.ts";
import type { PartRunner } from "./bench.ts";
import { fanout } from "./fanout.ts";
import { latency } from "./latency.ts";
import { memory } from "./memory.ts";
import { onPostgres } from "./on_postgres.ts";
import { openLong } from "./open_long.ts";
import { redisVersion } from "./redis.ts";
import { resume } from "./resume.ts";

const PARTS: Readonly<Record<string, { readonly run: PartRunner; readonly redis: boolean }>> = {
  a: { run: latency, redis: true },
  b: { run: fanout, redis: true },
  c: { run: resume, redis: true },
  d: { run: onPostgres, redis: false },
  e: { run: memory, redis: true },
  f: { run: openLong, redis: false },
};

const COMPARED = [
  "ioredis",
  "pg",
  "ws",
  "socket.io",
  "@socket.io/redis-streams-adapter",
  "resumable-stream",
  "@durable-streams/server",
];

/** The conversation plane: answers on their way to people. */
export const conversationPlane: Plane = {
  parts: Object.keys(PARTS),
  results: "RESULTS_CONVERSATIONS.md",
  async open(effort, stack) {
    const redis = redisVersion();
    if (!redis) console.error("!! redis-server is not installed: the parts that need it are SKIPPED.\n");
    const postgres = stack.use(await startPostgres());
    return {
      versions: [
        `Node ${process.version}`,
        redis ? `${redis} (appendonly, synced every second)` : "Redis: NOT INSTALLED, its parts are skipped",
        postgres.version,
        ...COMPARED.map((name) => `${name} ${packageVersion(name)}`),
      ],
      async measure(part) {
        const { run, redis: needed } = PARTS[part]!;
        if (redis || !needed) return await run({ ...effort, postgres });
        const how = ["SKIPPED: redis-server is not installed on this machine"];
        return { title: `(${part}) not measured`, how, tables: [], bars: [] };
      },
    };
  },
};
