import {
  type DescField,
  type DescMessage,
  fromJson,
  type JsonObject,
  type JsonValue,
  toJson,
} from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { inexactIntegerError, inexactNumber, KhalaError } from "@khala/contracts";
import type { Caller } from "../access/viewer.ts";

/** A kind of authority stream: its name, its HTTP path and its event types. */
export interface StreamDefinition {
  /** Stored with every event, such as "run". */
  readonly kind: string;
  /** The HTTP collection, such as "/runtime/v1/runs"; without one only the server itself appends. */
  readonly path?: string;
  /** The scope that may append. */
  readonly scope: string;
  /**
   * Decides whether a caller of the stream's org may append an event: true allows it to somebody who does not own the stream,
   * false refuses it to everybody, undefined leaves it to the scopes. Each append then reads the stream's row first.
   */
  authorize?(caller: Caller, stream: StreamState, event: ProposedEvent): boolean | undefined;
  /** Event types and the message that each one's data must be. */
  readonly events: Readonly<Record<string, DescMessage>>;
}

/** A stream that somebody wants to append to. */
export interface StreamState {
  readonly id: string;
  /** Who started it; the caller, when it does not exist yet. */
  readonly owner: string;
  /** The sequence of its newest event; 0 when it does not exist yet. */
  readonly seq: bigint;
}

/** An event that is not appended yet. Its data is valid for its type. */
export interface ProposedEvent {
  readonly type: string;
  readonly data: JsonValue;
}

/** A stream with an HTTP path. */
export type HttpStream = StreamDefinition & { readonly path: string };

/** Defines a stream. */
export function defineStream<Definition extends StreamDefinition>(definition: Definition): Definition {
  if (!/^[a-z][a-z0-9_]{0,62}$/.test(definition.kind)) {
    throw new TypeError(`A stream's kind is a lowercase name, not "${definition.kind}".`);
  }
  return Object.freeze(definition);
}

/** An event of the authority log. */
export interface AuthorityEvent<Data = JsonObject> {
  readonly position: bigint;
  readonly kind: string;
  readonly streamId: string;
  readonly seq: bigint;
  readonly type: string;
  readonly data: Data;
  readonly org: string;
  /** Who started the stream. */
  readonly owner: string;
  /** Who appended this event. */
  readonly actor: string;
  /** When it was appended, RFC 3339. */
  readonly at: string;
  readonly trace: string | null;
}

/** An event with the id that its sender chose. */
export interface StreamEvent extends AuthorityEvent {
  readonly eventId: string;
}

/** Checks an event's data against its type; returns the stored form. */
export function checkEventData(
  stream: StreamDefinition,
  type: string,
  data: JsonValue,
  field: string,
): JsonValue {
  const schema = Object.hasOwn(stream.events, type) ? stream.events[type] : undefined;
  if (!schema) {
    const known = Object.keys(stream.events).join(", ");
    const message = `"${type}" is not an event type of a ${stream.kind}. Use one of: ${known}.`;
    throw new KhalaError("unknown_event_type", message, { field: `${field}.type` });
  }
  const rounded = inexactNumber(data);
  if (rounded !== undefined) throw inexactIntegerError(`${field}.data.${rounded}`.replace(".[", "["));
  const missing = schema.fields.find((wanted) => isRequired(wanted) && !(wanted.name in Object(data)));
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

/** Proto3 has no required fields: here a scalar that is not marked `optional` must be sent. */
function isRequired(field: DescField): boolean {
  return field.fieldKind === "scalar" && field.presence === FeatureSet_FieldPresence.IMPLICIT;
}
