import type { DescField, DescMessage } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { COMMENTS } from "@khala/contracts/comments";

/** A JSON Schema (draft 2020-12), as far as OpenAPI documents need it. */
export type JsonSchema = Readonly<Record<string, unknown>>;

/** Where our JSON is not the proto3 mapping: what a field is instead. */
const EXCEPTIONS: Readonly<Record<string, JsonSchema>> = {
  "openagents.sync.v1.Document.payload": {},
  "openagents.sync.v1.Error.retry_after_ms": { type: "integer", format: "int64" },
};
/** Fields that are sent as null where there is nothing. */
const NULLABLE: ReadonlySet<string> = new Set([
  "openagents.conversation.v1.ConversationState.run",
  "openagents.conversation.v1.ConversationSummary.run",
  "openagents.sync.v1.DocumentList.next",
]);
/** Fields that are always there. The others may be absent: proto3's JSON leaves out what is empty. */
const REQUIRED: Readonly<Record<string, readonly string[]>> = {
  "openagents.sync.v1.ErrorResponse": ["error"],
  "openagents.sync.v1.Error": ["code", "message"],
  "openagents.sync.v1.Document": ["doc_key", "doc_version", "payload", "payload_hash", "updated_at"],
  "openagents.sync.v1.DocumentList": ["documents", "cursor"],
  "openagents.sync.v1.TokenRequest": ["sub", "org_id", "scopes"],
  "openagents.sync.v1.TokenResponse": ["token", "expires_at", "kid"],
  "openagents.runtime.v1.AppendRequest": ["events"],
  "openagents.runtime.v1.NewEvent": ["event_id", "type"],
  "openagents.runtime.v1.AppendResponse": ["seq"],
  "openagents.conversation.v1.ChatRequest": ["conv_id"],
  "openagents.conversation.v1.ChatResponse": ["conv_id", "run_id", "cursor"],
  "openagents.blackboard.v1.ArtifactDraft": ["type"],
  "openagents.blackboard.v1.ClaimRequest": ["worker"],
  "openagents.blackboard.v1.ApprovalDecision": ["approved"],
};

const ANY_OF_STRUCT: Readonly<Record<string, JsonSchema>> = {
  "google.protobuf.Value": {},
  "google.protobuf.Struct": { type: "object", additionalProperties: true },
};

/** The schemas of proto messages in JSON: the proto3 mapping with the proto's own field names. */
export class MessageSchemas {
  readonly #base: string;
  readonly #schemas = new Map<string, JsonSchema>();
  readonly #nameOf = new Map<string, string>();

  /** `base` is where the document keeps the schemas. */
  constructor(base = "#/components/schemas/") {
    this.#base = base;
  }

  /** Refers to the message's schema, and adds it with all that it refers to. */
  ref(message: DescMessage): JsonSchema {
    const known = ANY_OF_STRUCT[message.typeName];
    if (known) return known;
    const name = this.#name(message);
    if (!this.#schemas.has(name)) {
      // Before its fields: a message may have itself in it.
      this.#schemas.set(name, {});
      this.#schemas.set(name, this.#schemaOf(message));
    }
    return { $ref: this.#base + name };
  }

  /** The message's own schema, without a reference to it. */
  whole(message: DescMessage): JsonSchema {
    return this.#schemaOf(message);
  }

  /** The referenced schemas, in the order of their names. */
  all(): Record<string, JsonSchema> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Its short name, with the plane before it where two planes have one: `SyncDocumentList`. */
  #name({ typeName, name, file }: DescMessage): string {
    const taken = this.#nameOf.get(name);
    if (taken === undefined) this.#nameOf.set(name, typeName);
    if (taken === undefined || taken === typeName) return name;
    const plane = file.proto.package.split(".")[1] ?? "";
    return plane[0]!.toUpperCase() + plane.slice(1) + name;
  }

  #schemaOf(message: DescMessage): JsonSchema {
    const required = REQUIRED[message.typeName];
    return {
      type: "object",
      ...describe(message.typeName),
      properties: Object.fromEntries(message.fields.map((field) => [field.name, this.#property(field)])),
      ...(required && { required }),
    };
  }

  #property(field: DescField): JsonSchema {
    const name = `${field.parent.typeName}.${field.name}`;
    const schema = EXCEPTIONS[name] ?? this.#fieldSchema(field);
    const nullable = NULLABLE.has(name) ? { anyOf: [schema, { type: "null" }] } : schema;
    return { ...nullable, ...describe(name) };
  }

  #fieldSchema(field: DescField): JsonSchema {
    if (field.fieldKind === "list") return { type: "array", items: this.#single(field) };
    if (field.fieldKind === "map") return { type: "object", additionalProperties: this.#mapValue(field) };
    return this.#single(field);
  }

  #single(field: DescField & { fieldKind: "scalar" | "message" | "enum" | "list" }): JsonSchema {
    if (field.message) return this.ref(field.message);
    if (field.enum) return { type: "string", enum: field.enum.values.map(({ name }) => name) };
    return scalar(field.scalar!);
  }

  #mapValue(field: DescField & { fieldKind: "map" }): JsonSchema {
    if (field.message) return this.ref(field.message);
    return field.scalar ? scalar(field.scalar) : { type: "string" };
  }
}

function describe(name: string): { description?: string } {
  const description = COMMENTS[name];
  return description === undefined ? {} : { description };
}

function scalar(type: ScalarType): JsonSchema {
  switch (type) {
    case ScalarType.STRING:
      return { type: "string" };
    case ScalarType.BOOL:
      return { type: "boolean" };
    case ScalarType.BYTES:
      return { type: "string", contentEncoding: "base64" };
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return { type: "number" };
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return { type: "string", format: "int64", pattern: "^-?[0-9]+$" };
    default:
      return { type: "integer", format: "int32" };
  }
}
