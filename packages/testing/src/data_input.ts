import type { EventOf, EventSchema, StreamDefinition } from "@khala/server";

/** What a schema takes, before its defaults: of a Standard Schema its input, of a protobuf message its JSON. */
export type DataInput<Schema extends EventSchema> = Schema extends {
  readonly "~standard": { readonly types?: infer Types };
}
  ? NonNullable<Types> extends { readonly input: infer Input }
    ? Input
    : object
  : EventOf<StreamDefinition & { readonly kind: "k"; readonly events: { readonly e: Schema } }>["data"];
