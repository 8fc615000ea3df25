import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Agent, Schedule } from "./blackboard/model/agent.ts";
import type { DraftOf } from "./blackboard/model/artifact.ts";
import { type CheckedSchedule, checkSchedules } from "./blackboard/publish/cron.ts";
import type { EngineFactory } from "./conversations/engines/engine.ts";
import { PublicError } from "./conversations/engines/public_error.ts";
import type { AppendsOf, HttpStream, StreamDefinition } from "./events/stream.ts";
import { runs, workers } from "./events/streams.ts";
import { isStandardSchema, type Schemas } from "./kit/standard_schema.ts";
import type { DocumentsOf, Model } from "./sync/model.ts";
import { Models } from "./sync/model.ts";
import { waitingApprovals } from "./sync/models/approvals.ts";
import { boardAgentStates, boardCorrelationStates } from "./sync/models/blackboard.ts";

/** A user's app on Khala, in one value. */
export interface AppDefinition<
  M extends readonly Model[] = readonly Model[],
  S extends Schemas = Schemas,
  Params extends object = object,
> {
  /** Projections: how authority events become documents. */
  readonly models?: M;
  /** The engine that answers in conversations. Without one every run ends with an error that says so. */
  readonly engine?: EngineFactory<Params>;
  /** The agents that work on published artifacts. */
  readonly agents?: readonly Agent[];
  /** The schemas of payloads, by the type of their artifact: zod, valibot, arktype, or any Standard Schema. */
  readonly schemas?: S;
  /** Artifacts published on a schedule. */
  readonly schedules?: readonly Schedule[];
}

/** An app, checked. */
export interface App<
  M extends readonly Model[] = readonly Model[],
  S extends Schemas = Schemas,
  Params extends object = object,
> {
  /** For types alone, never set: what `createClient<typeof app>` knows of the topics. */
  readonly documents?: DocumentsOf<M>;
  /** For types alone, never set: the drafts that `createClient<typeof app>` may publish. */
  readonly drafts?: DraftOf<S>;
  /** For types alone, never set: the events that `createClient<typeof app>` may append. */
  readonly appends?: AppendsOf<M[number]["streams"][number] | typeof runs | typeof workers>;
  /** For types alone, never set: the params that `createClient<typeof app>` may send with a message. */
  readonly params?: Params;
  readonly models: Models;
  /** Every kind of stream that can be appended to over HTTP. */
  readonly streams: readonly HttpStream[];
  /** Undefined when the app has none. */
  readonly engine: EngineFactory | undefined;
  readonly agents: readonly Agent[];
  readonly schemas: Schemas;
  readonly schedules: readonly CheckedSchedule[];
}

/** Declares an app. */
export function defineApp<
  const M extends readonly Model[] = readonly [],
  S extends Schemas = Schemas,
  Params extends object = object,
>(definition: AppDefinition<M, S, Params>): App<M, S, Params> {
  checkFields(definition);
  const streams = new Map<string, StreamDefinition>([runs, workers].map((stream) => [stream.kind, stream]));
  const models = withBuiltIn(definition);
  for (const stream of models.flatMap((model) => model.streams)) {
    const known = streams.get(stream.kind);
    if (known && known !== stream) throw new TypeError(`Two streams have the kind "${stream.kind}".`);
    const same = [...streams.values()].find((other) => other !== stream && other.path === stream.path);
    if (same && stream.path !== undefined)
      throw new TypeError(`The streams "${same.kind}" and "${stream.kind}" have the path "${stream.path}".`);
    streams.set(stream.kind, stream);
  }
  const { engine, agents = [], schedules = [] } = definition;
  const names = agents.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new TypeError(`Two agents have the name "${twice}".`);
  return {
    models: new Models(models),
    streams: [...streams.values()].filter((stream): stream is HttpStream => stream.path !== undefined),
    engine,
    agents,
    schemas: allSchemas(definition),
    schedules: checkSchedules(schedules),
  };
}

const FIELDS: Record<keyof AppDefinition, true> = {
  models: true,
  engine: true,
  agents: true,
  schemas: true,
  schedules: true,
};

/** Where types do not check them, a mistake must not wait for the first request. */
function checkFields(definition: AppDefinition): void {
  const names = Object.keys(FIELDS);
  const unknown = Object.keys(definition).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`defineApp has no option "${unknown}". Its options: ${names.join(", ")}.`);
  for (const name of ["models", "agents", "schedules"] as const)
    if (definition[name] !== undefined && !Array.isArray(definition[name]))
      throw new TypeError(`The ${name} of an app must be a list.`);
  if (definition.engine !== undefined && typeof definition.engine !== "function")
    throw new TypeError(
      "The engine of an app must be a function that creates one: () => ({ async *run(turn) { … } }), or scripted() of @khala/server/engines.",
    );
}

/** The engine of an app without one: every run ends with an error that says so. */
export const noEngine: EngineFactory = () => ({
  // biome-ignore lint/correctness/useYield: it has nothing to say.
  async *run() {
    throw new PublicError(
      "This app has no engine. Pass one to defineApp, such as scripted() of @khala/server/engines.",
    );
  },
});

/** The schemas of the app and of its agents. A type has one schema. */
function allSchemas({ schemas = {}, agents = [] }: AppDefinition): Schemas {
  const given = [schemas, ...agents.map(({ options }) => options.schemas ?? {})];
  const all = new Map<string, StandardSchemaV1>();
  for (const [type, schema] of given.flatMap((each) => Object.entries(each))) {
    if (!isStandardSchema(schema))
      throw new TypeError(
        `The schema of "${type}" is not a Standard Schema. Use one such as z.object({ … }).`,
      );
    const known = all.get(type);
    if (known && known !== schema)
      throw new TypeError(`"${type}" has two schemas. Share one between the app and its agents.`);
    all.set(type, schema);
  }
  return Object.fromEntries(all);
}

/** An app with agents has documents of their state and work; one whose agents or engine may wait for a person, of that. */
function withBuiltIn({ models = [], agents = [], engine }: AppDefinition): readonly Model[] {
  const board = agents.length > 0 ? [boardAgentStates, boardCorrelationStates] : [];
  const inbox = engine || agents.length > 0 ? [waitingApprovals] : [];
  return [...models, ...[...board, ...inbox].filter((model) => !models.includes(model))];
}
