import type { JsonObject } from "@bufbuild/protobuf";
import { SCOPES } from "@khala/contracts";
import type { AppJson, ExampleRequestJson, SettingJson } from "@khala/contracts/ops/v1";
import type { App } from "../app.ts";
import type { BlackboardPlane } from "../blackboard/plane.ts";
import { sampleOf } from "../events/sample.ts";
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
export interface OpsParts {
  readonly app: App;
  /** Whether the app is the demo. */
  readonly demo: boolean;
  readonly health: Health;
  readonly sync: Pick<SyncPlane, "hub">;
  readonly blackboard: Pick<BlackboardPlane, "agents" | "lag">;
  readonly traffic: Traffic;
  readonly spans: SpanRing | undefined;
  readonly parity: OpsSources["parity"];
}

/** Opens the sources of the operator API. */
export function openOps(config: Config, context: Context, parts: OpsParts): OpsSources {
  const { app, demo, health, sync, blackboard, traffic, spans, parity } = parts;
  const backends = {
    sync: config.DATABASE_URL ? "postgres" : "embedded postgres",
    conversations: config.REDIS_URL ? "redis" : "postgres",
    blackboard: config.KAFKA_BOOTSTRAP_SERVERS ? "kafka" : "postgres",
  };
  const counters = () => ({ ...traffic.written, ...traffic.totals() });
  return {
    app: describeApp(app, demo),
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

/** The app for its operators: its models, agents and engine, and a request for each plane that works as it is. */
function describeApp(app: App, demo: boolean): AppJson {
  return {
    demo,
    models: app.models.all.map(({ topic, streams }) => ({ topic, streams: streams.map(({ kind }) => kind) })),
    agents: app.agents.map(({ name, consumes }) => ({ name, consumes: [...consumes] })),
    engine: app.engine !== undefined,
    examples: [appendExample(app), messageExample(app), publishExample(app)].filter(
      (example) => example !== undefined,
    ),
  };
}

function appendExample({ models, streams }: App): ExampleRequestJson | undefined {
  for (const model of models.all)
    for (const { kind, events } of model.streams) {
      // The events of some models come from the server itself.
      const stream = streams.find((one) => one.kind === kind);
      const [event] = Object.entries(events);
      if (!stream || !event) continue;
      const [type, schema] = event;
      const data = sampleOf(schema) as JsonObject | undefined;
      // A request that the server refuses is no example.
      if (!data) continue;
      return {
        plane: "sync",
        name: type,
        path: `${stream.path}/hello/events`,
        body: { events: [{ event_id: "1", type, data }] },
        scope: stream.scope,
      };
    }
  return undefined;
}

function messageExample({ engine }: App): ExampleRequestJson | undefined {
  if (!engine) return undefined;
  return {
    plane: "conversations",
    name: "message",
    path: "/chat",
    body: { conv_id: "hello", message: "Hello!" },
    scope: SCOPES.chat,
  };
}

function publishExample({ agents, schemas }: App): ExampleRequestJson | undefined {
  const type = agents[0]?.consumes[0];
  if (type === undefined) return undefined;
  const schema = schemas[type];
  const payload = (schema ? sampleOf(schema) : { topic: "Otters" }) as JsonObject | undefined;
  if (!payload) return undefined;
  return {
    plane: "blackboard",
    name: type,
    path: "/blackboard/v1/artifacts",
    body: { type, payload },
    scope: SCOPES.blackboardWrite,
  };
}
