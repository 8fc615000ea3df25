import type { JsonObject } from "@bufbuild/protobuf";
import { canonicalJson, KhalaError } from "@khala/contracts";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Clock, systemClock } from "../../kit/clock.ts";
import { validate } from "../../kit/standard_schema.ts";
import type { ConversationKey, Engine, EngineFactory } from "../engines/engine.ts";

/** A schema of what is sent as `params`: zod, valibot, arktype, or anything else that is a Standard Schema. */
export type ParamsSchema<Params, Sent = unknown> = StandardSchemaV1<Sent, Params>;

const SCHEMA_MS = 5_000;
const MAX_BYTES = 64 << 10;

/** An engine that is the same for every conversation. */
export type EngineDefinition<Params, Sent = unknown> = Engine<Params> & {
  readonly params: ParamsSchema<Params, Sent>;
};

/** Declares an engine. With a schema, the turn's `params` have the schema's type, and clients send what it takes. */
export function defineEngine<Params, Sent extends object>(
  definition: EngineDefinition<Params, Sent>,
): EngineFactory<Sent>;
export function defineEngine(definition: Engine): EngineFactory;
export function defineEngine<Params>(
  definition: (Engine & { readonly params?: undefined }) | EngineDefinition<Params>,
): EngineFactory {
  return definition.params === undefined ? () => definition : withParams(definition.params, () => definition);
}

/** Validates the params of each turn. They are stored as they were sent, so conversions happen here, once. */
export function withParams<Params>(
  schema: ParamsSchema<Params>,
  factory: (conversation: ConversationKey) => Engine<Params>,
): EngineFactory {
  const checked = (conversation: ConversationKey): Engine => {
    const engine = factory(conversation);
    return {
      ...engine,
      async *run(turn, signal) {
        yield* engine.run({ ...turn, params: await readParams(schema, turn.params) }, signal);
      },
      ...(engine.close && { close: () => engine.close?.() }),
    };
  };
  return Object.assign(checked, { params: schema });
}

/** The params as the schema returns them; throws invalid_request with the field that is wrong. */
export async function readParams<Params>(
  schema: ParamsSchema<Params>,
  params: JsonObject,
  clock: Clock = systemClock,
): Promise<Params> {
  const result = await validate(schema, params, { clock, timeoutMs: SCHEMA_MS });
  if (!result.issues) return result.value;
  const { path = "", message = "is not accepted" } = result.issues[0] ?? {};
  const field = `params${path}`;
  throw new KhalaError("invalid_request", `${field}: ${message}`, { field });
}

/** Refuses params that cannot be stored. */
export function checkStorable(params: JsonObject): void {
  let text: string;
  try {
    text = canonicalJson(params);
  } catch (error) {
    if (!(error instanceof KhalaError)) throw error;
    const { field } = error.details;
    const path = field ? `params${field.startsWith("[") ? "" : "."}${field}` : "params";
    throw new KhalaError("invalid_request", `${path}: ${error.message}`, { field: path });
  }
  if (Buffer.byteLength(text) > MAX_BYTES) {
    const message = `params may have at most ${MAX_BYTES} bytes. Upload larger data as a file.`;
    throw new KhalaError("payload_too_large", message, { field: "params" });
  }
  if (/(?<!\\)(?:\\\\)*\\u0000/.test(text))
    throw new KhalaError("invalid_request", "params must not contain the character NUL.", {
      field: "params",
    });
}
