import { inputJsonSchema } from "../kit/standard_schema.ts";
import type { EventSchema } from "./event_schema.ts";

/** Sample data for a schema: its first field, and the required ones. Undefined where the library does not describe its schemas. */
export function sampleOf(schema: EventSchema): unknown {
  if (!("~standard" in schema)) return sampleOfMessage(schema);
  try {
    const described: JsonSchema | undefined = inputJsonSchema(schema);
    return described && sampleOfJson(described);
  } catch {
    // A payload may have a schema that JSON Schema cannot express.
    return undefined;
  }
}

type Message = Exclude<EventSchema, { readonly "~standard": unknown }>;

function sampleOfMessage(schema: Message): Record<string, unknown> {
  const fields = schema.fields.filter(
    (field, i) => field.fieldKind === "scalar" && (i === 0 || !field.proto.proto3Optional),
  );
  return Object.fromEntries(fields.map((field) => [field.name, VALUES[String(field.scalar)] ?? 1]));
}

/** By protobuf's number of the type: bool, string, bytes; the rest are numbers. */
const VALUES: Readonly<Record<string, unknown>> = { "8": true, "9": "Hello", "12": "" };

/** The part of JSON Schema that a sample needs. */
interface JsonSchema {
  readonly type?: unknown;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly anyOf?: readonly JsonSchema[];
  readonly minimum?: number;
  readonly format?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
}

const FORMATS: Readonly<Record<string, string>> = {
  "date-time": "2026-02-20T12:00:00Z",
  date: "2026-02-20",
  email: "ada@example.com",
  uri: "https://example.com",
  uuid: "0195210c-6b00-7000-8000-000000000001",
};

function sampleOfJson(schema: JsonSchema): unknown {
  if (schema.const !== undefined) return schema.const;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  if (schema.anyOf?.[0]) return sampleOfJson(schema.anyOf[0]);
  const { properties = {}, required = [] } = schema;
  switch (schema.type) {
    case "string":
      return FORMATS[schema.format ?? ""] ?? "Hello";
    case "integer":
    case "number":
      return Math.max(1, schema.minimum ?? 1);
    case "boolean":
      return true;
    case "array":
      return [];
    case "null":
      return null;
    default: {
      const fields = Object.entries(properties).filter(([name], i) => i === 0 || required.includes(name));
      return Object.fromEntries(fields.map(([name, field]) => [name, sampleOfJson(field)]));
    }
  }
}
