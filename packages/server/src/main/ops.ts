import type { SettingJson } from "@khala/contracts/ops/v1";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import type { Health } from "../gateway/http/health.ts";
import type { OpsSources } from "../gateway/http/routes/ops.ts";
import { openHistory } from "../gateway/ops/history.ts";
import { openOverview } from "../gateway/ops/overview.ts";
import type { Traffic } from "../gateway/sockets/traffic.ts";
import type { Context } from "../kit/context.ts";
import type { SpanRing } from "../kit/span_ring.ts";
import type { SyncPlane } from "../sync/plane.ts";
import { type Config, describeConfig, readConfig } from "./config.ts";
import { blackboardSettings } from "./settings.ts";
import { VERSION } from "./startup.ts";

/** Dependencies of the operator API. */
export interface OpsParts extends Pick<OpsSources, "app"> {
  readonly health: Health;
  readonly sync: Pick<SyncPlane, "hub">;
  readonly blackboard: Pick<BlackboardPlane, "agents" | "lag">;
  readonly traffic: Traffic;
  readonly spans: SpanRing | undefined;
  readonly parity: OpsSources["parity"];
}

/** Opens the sources of the operator API. */
export function openOps(config: Config, context: Context, parts: OpsParts): OpsSources {
  const { app, health, sync, blackboard, traffic, spans, parity } = parts;
  const backends = {
    sync: config.DATABASE_URL ? "postgres" : "embedded postgres",
    conversations: config.REDIS_URL ? "redis" : "postgres",
    blackboard: config.KAFKA_BOOTSTRAP_SERVERS ? "kafka" : "postgres",
  };
  const counters = () => ({ ...traffic.written, ...traffic.totals() });
  return {
    app,
    history: openHistory(context, { sync, traffic: counters }),
    overview: openOverview(context, {
      intervalMs: config.KHALA_OPS_INTERVAL_MS,
      health,
      sync,
      blackboard,
      backends,
      refuseLag: blackboardSettings(config).lag.refuse,
      traffic: counters,
    }),
    about: {
      version: VERSION,
      backends,
      ...(config.KHALA_TRACE_URL && { trace_url: config.KHALA_TRACE_URL }),
    },
    settings: () => settingsOf(config),
    spans,
    parity,
  };
}

/** Every setting as it would be written into the environment; secrets are masked. */
export function settingsOf(config: Config): SettingJson[] {
  const defaults = new Map(describeConfig(readConfig({})).map(({ name, value }) => [name, written(value)]));
  return describeConfig(config).map(({ name, value, meaning, secret }) => {
    const text = written(value);
    return {
      name,
      value: secret && text !== "" ? "***" : text,
      default: text === defaults.get(name),
      secret,
      about: meaning,
    };
  });
}

function written(value: unknown): string {
  if (value === undefined) return "";
  return Array.isArray(value) ? value.join(",") : String(value);
}
