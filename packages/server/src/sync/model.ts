import type { AuthorityEvent, EventOf, StreamDefinition } from "../events/stream.ts";
import { checkFields, type FieldOf, type Fields, type IndexedFields, type OrderOf } from "./model_fields.ts";

/** The return value of a projection that deletes its document. */
export const tombstone: unique symbol = Symbol("khala.tombstone");

/** A projection: how events become the documents of one topic. */
export interface Model<
  Document extends object = object,
  Topic extends string = string,
  Streams extends readonly StreamDefinition[] = readonly StreamDefinition[],
> extends IndexedFields {
  /** The topic and collection, such as "runtime.run_summaries". */
  readonly topic: Topic;
  /** The read model's table in the schema `runtime`. */
  readonly table: string;
  /** The prefix of every doc_key: `<prefix>:<id>`. Unique among the models. */
  readonly prefix: string;
  readonly streams: Streams;
  /** The id of the document that an event changes, or null if it changes none. */
  id(event: AuthorityEvent): string | null;
  /** Pure: the next document, `tombstone` to delete it, or the same document for no change. */
  project(document: Document | null, event: AuthorityEvent): Document | typeof tombstone | null;
  /** Pure: the subjects of the event's org who may see a document, or null for the whole org. */
  audience(document: Document, event: AuthorityEvent): readonly string[] | null;
  /** Pure: when a document expires, RFC 3339; null for one that does not. */
  expiresAt?(document: Document): string | null | undefined;
}

/** A model as an app defines it. */
export interface ModelDefinition<
  Document extends object,
  Topic extends string = string,
  Streams extends readonly StreamDefinition[] = readonly StreamDefinition[],
  Order extends string = OrderOf<Document>,
  Field extends string = FieldOf<Document>,
> {
  readonly topic: Topic;
  readonly prefix: string;
  readonly streams: Streams;
  /** Default: `sync_` and the topic's last part. */
  readonly table?: string;
  /** Default: the id of the stream. */
  readonly id?: (event: EventsOf<Streams>) => string | null;
  /** Pure: the next document, `tombstone` to delete it, or the same document for no change. */
  readonly project: (
    document: Document | null,
    event: EventsOf<Streams>,
  ) => (Document | Literals<Document> | typeof tombstone | null) & Fields<Order, Field, NoInfer<Document>>;
  /** Default: the whole org. Return subjects to narrow it; null or none is the whole org. */
  readonly audience?: (document: Document, event: EventsOf<Streams>) => readonly string[] | null | undefined;
  /** Pure: when a document expires, RFC 3339, such as a field of it; null or none: never. Default: documents do not expire. */
  readonly expiresAt?: (document: Document) => string | null | undefined;
  /** Orders of lists: "title", or "-updated_at" for the highest first. Each has an index. */
  readonly orderBy?: readonly Order[];
  /** Fields that lists may be filtered by. Each has an index. */
  readonly filter?: readonly Field[];
  /** Fields that partition the topic: clients follow `topic?<field>=<value>`. Lists may be filtered by them, too. */
  readonly by?: readonly Field[];
}

/**
 * Keeps the literals of what a projection returns: without it TypeScript reads `status: "open"` as any text, before it
 * compares it with `"open" | "closed"`. Admits nothing that a document does not. Three levels of objects and lists,
 * because a type of any JSON has no end.
 */
type Literals<Document> = LiteralFields<Document, 1, 2, 3>;
type LiteralFields<Value, Level, Next = never, Last = never> = [Level] extends [never]
  ? never
  : { [Key in keyof Value]: (Value[Key] & ("" | 0 | false)) | LiteralFields<Value[Key], Next, Last> };

/**
 * The type of a document that is used above `project`. TypeScript reads the type of the document from there, and an
 * object from its top.
 */
export interface AnnotateTheDocumentOrPutProjectFirst {
  readonly [tombstone]: never;
}

/** The events of several streams: `event.type` decides what `event.data` is. */
export type EventsOf<Streams extends readonly StreamDefinition[]> = [Streams[number]] extends [never]
  ? AuthorityEvent
  : EventOf<Streams[number]>;

/** Document types by topic; models without a literal topic are left out. */
export type DocumentsOf<M extends readonly Model[]> = {
  readonly [K in M[number] as string extends K["topic"] ? never : K["topic"]]: K extends Model<infer Document>
    ? Document
    : never;
};

/** Maximum bytes of a document key. */
export const MAX_KEY_BYTES = 512;
/** The one plain name is that of the built-in inbox. */
const NAME = /^(approvals|[a-z][a-z0-9_]{0,40}(\.[a-z][a-z0-9_]{0,40})+)$/;

/**
 * Declares a model, with its types: annotate the document parameter of `project`,
 * and clients know the document type of the topic. The events have the types of the streams' schemas.
 */
export function defineModel<
  Document extends object = AnnotateTheDocumentOrPutProjectFirst,
  const Topic extends string = string,
  const Streams extends readonly StreamDefinition[] = readonly StreamDefinition[],
  Order extends string = OrderOf<Document>,
  Field extends string = FieldOf<Document>,
>(definition: ModelDefinition<Document, Topic, Streams, Order, Field>): Model<Document, Topic, Streams> {
  // The log has events of any type; a server hands a model those of its streams.
  const wide = definition as unknown as ModelDefinition<Document, Topic>;
  const { topic, prefix, id, project, audience, expiresAt } = wide;
  if (!NAME.test(topic))
    throw new TypeError(
      `A topic must be lowercase names with dots between them, such as "app.things", not "${topic}".`,
    );
  if (!/^[a-z][a-z0-9_]{0,30}$/.test(prefix))
    throw new TypeError(`The prefix of ${topic} must be one lowercase name, not "${prefix}".`);
  const table = definition.table ?? `sync_${topic.split(".").at(-1)}`;
  // PostgreSQL truncates longer names, also of indexes: two could collide.
  if (!/^[a-z][a-z0-9_]{0,47}$/.test(table))
    throw new TypeError(
      `The table of ${topic} must be one lowercase name of at most 48 characters, not "${table}".`,
    );
  const model: Model<Document, Topic, Streams> = {
    ...checkFields(wide),
    topic,
    table,
    prefix,
    streams: definition.streams,
    id: id ?? ((event) => event.streamId),
    project: project as Model<Document>["project"],
    audience(document, event) {
      const subjects = audience?.(document, event);
      return subjects?.length ? [...new Set(subjects.filter(isNameable))].sort() : null;
    },
    ...(expiresAt && { expiresAt }),
  };
  return Object.freeze(model);
}

/** Whether a token can have this subject. Others are dropped, because storing them could fail and stop the projection. */
export function isNameable(subject: string): boolean {
  return /^[^\0]{1,256}$/u.test(subject) && subject.isWellFormed();
}

/** Identifies a document of a topic in a map: every org has keys of its own. */
export function documentId({ org, docKey }: { readonly org: string; readonly docKey: string }): string {
  // Neither can hold NUL, so two documents never share an id.
  return `${org}\0${docKey}`;
}

/** Whether a key is valid for the model. */
export function isKeyOf(model: Model, docKey: string): boolean {
  // A lone surrogate would be stored as another character: two keys could collide.
  const storable =
    Buffer.byteLength(docKey) <= MAX_KEY_BYTES && docKey.isWellFormed() && !docKey.includes("\0");
  return storable && docKey.startsWith(`${model.prefix}:`);
}

/** The models of one server, by topic and by key prefix. Names must be unique. */
export class Models {
  readonly all: readonly Model[];
  readonly #byTopic = new Map<string, Model>();
  readonly #byPrefix = new Map<string, Model>();

  constructor(models: readonly Model[]) {
    this.all = models;
    const tables = new Set<string>();
    for (const model of models) {
      if (this.#byTopic.has(model.topic)) throw new TypeError(`Two models have the topic "${model.topic}".`);
      if (this.#byPrefix.has(model.prefix))
        throw new TypeError(`Two models have the key prefix "${model.prefix}".`);
      if (tables.has(model.table))
        throw new TypeError(`Two models have the table "${model.table}". Set \`table\` in one.`);
      this.#byTopic.set(model.topic, model);
      this.#byPrefix.set(model.prefix, model);
      tables.add(model.table);
    }
  }

  byTopic(topic: string): Model | undefined {
    return this.#byTopic.get(topic);
  }

  /** The model that a document key belongs to. */
  byKey(docKey: string): Model | undefined {
    return this.#byPrefix.get(docKey.slice(0, docKey.indexOf(":")));
  }
}
