/** A field of a document. */
export type FieldOf<Document extends object> = keyof Document & string;
/** A field to order by; with "-" the highest come first. */
export type OrderOf<Document extends object> = FieldOf<Document> | `-${FieldOf<Document>}`;
/**
 * Anything if the names are fields of the document, else what no projection returns. Checked there, because a type
 * of `orderBy` that names the document keeps TypeScript from reading the document from the projection.
 */
export type Fields<Order extends string, Field extends string, Document extends object> = [
  Order,
  Field,
] extends [OrderOf<Document>, FieldOf<Document>]
  ? unknown
  : {
      readonly "these are no fields of the document":
        | Exclude<Order, OrderOf<Document>>
        | Exclude<Field, FieldOf<Document>>;
    };

/** The fields of a model's documents that the database has indexes for. */
export interface IndexedFields {
  /** As declared: "title" or "-updated_at". */
  readonly orderBy: readonly string[];
  readonly filter: readonly string[];
  /** Fields that partition the topic. */
  readonly by: readonly string[];
}

/** The part of a topic that is one document: `topic?doc_key=<key>`. */
export const KEY_FIELD = "doc_key";

/** Each field costs an index for every order, in every write. */
const MAX_FIELDS = 4;
const FIELD = /^[A-Za-z_][A-Za-z0-9_]{0,40}$/;
/** They have a meaning in the query of a list. */
const RESERVED = [KEY_FIELD, "order", "after", "limit"];

/** The declared fields, each once; throws for those that no index can be made of. */
export function checkFields(definition: Partial<IndexedFields> & { readonly topic: string }): IndexedFields {
  const { topic } = definition;
  const read = (option: keyof IndexedFields): readonly string[] => {
    const names = [...new Set(definition[option] ?? [])];
    const wrong = names.find((name) => !FIELD.test(option === "orderBy" ? fieldOf(name) : name));
    if (wrong !== undefined)
      throw new TypeError(
        `${option} of ${topic} must name fields of the document, such as "status", not "${wrong}".`,
      );
    return names;
  };
  const [orderBy, filter, by] = [read("orderBy"), read("filter"), read("by")];
  const reserved = by.find((name) => RESERVED.includes(name));
  if (reserved !== undefined)
    throw new TypeError(`by of ${topic} cannot name "${reserved}": lists have a parameter of that name.`);
  const [orders, filters] = [new Set(orderBy.map(fieldOf)), new Set([...filter, ...by])];
  if (orders.size > MAX_FIELDS)
    throw new TypeError(`orderBy of ${topic} has ${orders.size} fields; at most ${MAX_FIELDS} are allowed.`);
  if (filters.size > MAX_FIELDS)
    throw new TypeError(
      `filter and by of ${topic} have ${filters.size} fields; at most ${MAX_FIELDS} are allowed.`,
    );
  return { orderBy, filter, by };
}

/** The field of an order. */
export function fieldOf(order: string): string {
  return order.startsWith("-") ? order.slice(1) : order;
}

/** Fields that lists of the model may be filtered by. */
export function filterFields({ filter, by }: IndexedFields): readonly string[] {
  return [...new Set([...filter, ...by])];
}
