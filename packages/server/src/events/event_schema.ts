import { type DescField, type DescMessage, fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { inexactIntegerError, inexactNumber, KhalaError } from "@khala/contracts";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Clock } from "../kit/clock.ts";
import { inputJsonSchema, inTime, isStandardSchema, pathOf } from "../kit/standard_schema.ts";

/** The schema of an event's data: a Standard Schema (zod, valibot, arktype), or a generated protobuf message. */
export type EventSchema = StandardSchemaV1 | DescMessage;

/** The timeout of an asynchronous schema. */
const SCHEMA_MS = 5_000;

/** Throws unless the schema can describe the data of an event. */
export function checkEventSchema(kind: string, type: string, schema: unknown): asserts schema is EventSchema {
  const where = `The event "${type}" of the stream "${kind}"`;
  if (isMessage(schema)) return;
  if (!isStandardSchema(schema)) {
    const wanted = "a Standard Schema, such as z.object({ … }) of zod, or a message that protobuf generated";
    throw new TypeError(`${where} needs a schema: ${wanted}; not ${shown(schema)}.`);
  }
  let json: Readonly<Record<string, unknown>> | undefined;
  try {
    json = inputJsonSchema(schema);
  } catch (cause) {
    const reason = (cause as Error).message;
    throw new TypeError(
      `${where} has a schema that JSON data cannot match: ${reason}. Use strings, numbers, booleans, lists and objects.`,
      { cause },
    );
  }
  if (json?.type !== undefined && json.type !== "object")
    throw new TypeError(
      `${where} has a schema of type "${String(json.type)}". The data of an event must be an object.`,
    );
}

/** Checks an event's data against its type; returns the stored form. Only an asynchronous schema takes time. */
export function checkEventData(
  stream: { readonly kind: string; readonly events: Readonly<Record<string, EventSchema>> },
  type: string,
  data: JsonValue,
  field: string,
  clock: Clock,
): JsonValue | Promise<JsonValue> {
  const schema = Object.hasOwn(stream.events, type) ? stream.events[type] : undefined;
  if (!schema) {
    const known = Object.keys(stream.events).join(", ");
    const message = `"${type}" is not an event type of a ${stream.kind}. Use one of: ${known}.`;
    throw new KhalaError("unknown_event_type", message, { field: `${field}.type` });
  }
  const rounded = inexactNumber(data);
  if (rounded !== undefined) throw inexactIntegerError(`${field}.data.${rounded}`.replace(".[", "["));
  if (isMessage(schema)) return checkMessage(schema, type, data, field);
  const answer = schema["~standard"].validate(data);
  const take = (result: StandardSchemaV1.Result<unknown>) => storedForm(result, type, field);
  return answer instanceof Promise ? inTime(answer, clock, SCHEMA_MS).then(take) : take(answer);
}

function storedForm(result: StandardSchemaV1.Result<unknown>, type: string, field: string): JsonValue {
  if (!result.issues) return result.value as JsonValue;
  const [first] = result.issues;
  const where = `${field}.data${pathOf(first?.path)}`;
  const reason = first?.message.replace(/\.$/, "") ?? "its schema refuses it";
  const more = result.issues.length > 1 ? ` (and ${result.issues.length - 1} more)` : "";
  const message = `The data of "${type}" is not valid: ${where}: ${reason}${more}.`;
  throw new KhalaError("invalid_request", message, { field: where });
}

function checkMessage(schema: DescMessage, type: string, data: JsonValue, field: string): JsonValue {
  const sent = Object(data) as Readonly<Record<string, unknown>>;
  // Protobuf reads null as absent.
  const missing = schema.fields.find((wanted) => isRequired(wanted) && sent[wanted.name] == null);
  if (missing) {
    const path = `${field}.data.${missing.name}`;
    throw new KhalaError("invalid_request", `A "${type}" event needs \`${missing.name}\`.`, { field: path });
  }
  try {
    return toJson(schema, fromJson(schema, data, { ignoreUnknownFields: false }), {
      useProtoFieldName: true,
    });
  } catch (cause) {
    const reason = (cause as Error).message;
    throw new KhalaError(
      "invalid_request",
      `The data of "${type}" is not valid: ${reason}.`,
      { field: `${field}.data` },
      { cause },
    );
  }
}

function isMessage(schema: unknown): schema is DescMessage {
  const { kind, typeName } = Object(schema) as { kind?: unknown; typeName?: unknown };
  return kind === "message" && typeof typeName === "string";
}

/** Proto3 has no required fields: here a scalar that is not marked `optional` must be sent. */
function isRequired(field: DescField): boolean {
  return field.fieldKind === "scalar" && field.presence === FeatureSet_FieldPresence.IMPLICIT;
}

function shown(value: unknown): string {
  if (value === null || typeof value !== "object")
    return typeof value === "string" ? `"${value}"` : String(value);
  return Array.isArray(value) ? "a list" : "an object";
}
