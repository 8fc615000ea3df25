import type { DescMessage, JsonObject, JsonValue, MessageJsonType } from "@bufbuild/protobuf";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Caller } from "../access/viewer.ts";
import type { Stored } from "../kit/standard_schema.ts";
import { checkEventSchema, type EventSchema } from "./event_schema.ts";

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
  /** Event types, and what each one's data must be. */
  readonly events: Readonly<Record<string, EventSchema>>;
}

/** The stream of an append. */
export interface StreamState {
  readonly id: string;
  /** The creator; the caller, when the stream does not exist yet. */
  readonly owner: string;
  /** The sequence of its newest event; 0 when it does not exist yet. */
  readonly seq: bigint;
}

/** An event that is not appended yet. Its data is valid for its type. */
export interface ProposedEvent {
  readonly type: string;
  readonly data: JsonValue;
}

/** A proposed event of a stream with these schemas: `type` decides what `data` is. */
type ProposedOf<Events extends StreamDefinition["events"]> = {
  readonly [Type in keyof Events & string]: { readonly type: Type; readonly data: DataOf<Events[Type]> };
}[keyof Events & string];

/** A stream as an app defines it. */
interface StreamInput<Kind extends string, Events extends StreamDefinition["events"], Path>
  extends Omit<StreamDefinition, "path" | "authorize"> {
  readonly kind: Kind;
  readonly path?: Path;
  readonly events: Events;
  /** See `StreamDefinition`. */
  authorize?(caller: Caller, stream: StreamState, event: ProposedOf<Events>): boolean | undefined;
}

/** A stream that knows its kind, its path and its schemas. */
type TypedStream<Kind extends string, Events extends StreamDefinition["events"], Path> = Omit<
  StreamDefinition,
  "kind" | "events" | "path" | "authorize"
> & {
  readonly kind: Kind;
  readonly events: Events;
  // A stream may be made of another one, with its `authorize`.
  readonly authorize?: (
    caller: Caller,
    stream: StreamState,
    event: { readonly type: string; readonly data: unknown },
  ) => boolean | undefined;
} & (Path extends string ? { readonly path: Path } : unknown);

/** A stream with an HTTP path. */
export type HttpStream = StreamDefinition & { readonly path: string };

/** Defines a stream. A schema that cannot work is refused here, and not with the first event. */
export function defineStream<
  const Kind extends string,
  const Events extends StreamDefinition["events"],
  const Path extends string | undefined = undefined,
>(input: StreamInput<Kind, Events, Path>): TypedStream<Kind, Events, Path> {
  // `authorize` gets events that have passed these schemas.
  const definition = input as unknown as TypedStream<Kind, Events, Path>;
  const { kind, events, path, scope } = input;
  if (!/^[a-z][a-z0-9_]{0,62}$/.test(kind))
    throw new TypeError(`A stream's kind must be a lowercase name, not "${kind}".`);
  if (typeof scope !== "string" || !/^[^\s\p{Cc}]{1,200}$/u.test(scope))
    throw new TypeError(
      `The stream "${kind}" needs \`scope\`: the one that may append, such as "runtime:write".`,
    );
  if (path !== undefined) checkPath(kind, path);
  if (typeof events !== "object" || events === null || Object.keys(events).length === 0)
    throw new TypeError(`The stream "${kind}" needs \`events\`: at least one type of event, and its schema.`);
  for (const [type, schema] of Object.entries(events)) checkEventSchema(kind, type, schema);
  Object.freeze(definition);
  return definition;
}

/** The first part of the paths that the server has routes of its own under. */
const OWN_PATHS = "ag-ui|ai|api|approvals|blackboard|chat|files|mcp|ops|socket|sync|ws";

function checkPath(kind: string, path: string): void {
  if (!/^(\/[A-Za-z0-9_.-]+)+$/.test(path))
    throw new TypeError(`The path of the stream "${kind}" must look like "/app/v1/things", not "${path}".`);
  if (new RegExp(`^/(${OWN_PATHS})(/|$)`).test(path))
    throw new TypeError(
      `The path of the stream "${kind}" is reserved: "${path}". Use one such as "/app${path}".`,
    );
}

/** The data of an event, as its schema has it and JSON keeps it. */
export type DataOf<Schema> = Schema extends StandardSchemaV1
  ? Stored<StandardSchemaV1.InferOutput<Schema>>
  : Schema extends DescMessage
    ? MessageJsonType<Schema>
    : JsonObject;

/** The data of an event as it is sent: what its schema accepts, before defaults and transformations. */
export type InputOf<Schema> = Schema extends StandardSchemaV1
  ? StandardSchemaV1.InferInput<Schema>
  : Schema extends DescMessage
    ? MessageJsonType<Schema>
    : JsonObject;

/** The events of a stream: a union of its types, each with its data. */
export type AppendedOf<Stream extends StreamDefinition> = {
  readonly [Type in keyof Stream["events"] & string]: {
    readonly type: Type;
    readonly data: InputOf<Stream["events"][Type]>;
    readonly event_id?: string;
  };
}[keyof Stream["events"] & string];

/** The events that may be appended over HTTP, by the path of the stream. */
export type AppendsOf<Streams extends StreamDefinition> = {
  readonly [Stream in Extract<Streams, HttpStream> as string extends Stream["path"]
    ? never
    : Stream["path"]]: AppendedOf<Stream>;
};

/** The events of a stream: a union of its types, each with its data. */
export type EventOf<Stream extends StreamDefinition> = Stream extends StreamDefinition
  ? string extends keyof Stream["events"]
    ? AuthorityEvent
    : {
        [Type in keyof Stream["events"] & string]: AuthorityEvent<
          DataOf<Stream["events"][Type]>,
          Type,
          Stream["kind"]
        >;
      }[keyof Stream["events"] & string]
  : never;

/** An event of the authority log. */
export interface AuthorityEvent<
  Data = JsonObject,
  Type extends string = string,
  Kind extends string = string,
> {
  readonly position: bigint;
  readonly kind: Kind;
  readonly streamId: string;
  readonly seq: bigint;
  readonly type: Type;
  readonly data: Data;
  readonly org: string;
  /** The creator of the stream. */
  readonly owner: string;
  /** The actor of this event. */
  readonly actor: string;
  /** When it was appended, RFC 3339. */
  readonly at: string;
  readonly trace: string | null;
}

/** The type of an event whose content was erased. No stream declares it, and no projection gets it. */
export const ERASED = "khala.erased";

/** An event with the id that its sender chose. */
export interface StreamEvent extends AuthorityEvent {
  readonly eventId: string;
}
