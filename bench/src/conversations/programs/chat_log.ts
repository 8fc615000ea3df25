import { topicForConv } from "@khala/contracts";
import { pino } from "pino";
import type { Log } from "../../../../packages/server/src/conversations/log/log.ts";
import { openPostgresLog } from "../../../../packages/server/src/conversations/log/postgres/postgres_log.ts";
import { openRedisLog } from "../../../../packages/server/src/conversations/log/redis/redis_log.ts";
import { openDatabase } from "../../../../packages/server/src/database/database.ts";
import { openWakeups } from "../../../../packages/server/src/database/wakeups.ts";
import { systemClock } from "../../../../packages/server/src/kit/clock.ts";
import type { Context } from "../../../../packages/server/src/kit/context.ts";
import { uuidv7 } from "../../../../packages/server/src/kit/ids.ts";
import { openQuotas } from "../../../../packages/server/src/kit/quota.ts";
import { openTelemetry } from "../../../../packages/server/src/kit/telemetry.ts";
import type { Store } from "../bench.ts";

/** Writes to conversations as a run does, from a process that is not the gateway. */
export interface ChatLog {
  append(conv: string, entry: string): Promise<void>;
  stop(): Promise<void>;
}

const TTL_MS = 3_600_000;

/** Opens the library's log alone. */
export async function openChatLog({ url, redis }: Store): Promise<ChatLog> {
  const telemetry = await openTelemetry();
  const context: Context = {
    clock: systemClock,
    random: Math.random,
    newId: uuidv7(systemClock),
    log: pino({ level: "error" }),
    telemetry,
    quotas: openQuotas(telemetry.meter),
  };
  if (redis) return writer(await openRedisLog(context, { url: redis, ttlMs: TTL_MS }));
  const database = openDatabase({ url, poolSize: 10, log: context.log });
  const wakeups = openWakeups(database, context, { enabled: true });
  return writer(openPostgresLog(database, context, { ttlMs: TTL_MS, wakeups }), async () => {
    await wakeups.stop();
    await database.close();
  });
}

function writer(log: Log, close: () => Promise<void> = async () => {}): ChatLog {
  return {
    async append(conv, entry) {
      await log.append(topicForConv(conv), [entry]);
    },
    async stop() {
      await log.stop();
      await close();
    },
  };
}
