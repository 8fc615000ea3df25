import { KhalaError } from "@khala/contracts";
import { isKeyOf, type Model, type Models } from "./model.ts";
import { KEY_FIELD } from "./model_fields.ts";

/** A field of a document, and the value that it has in a part. */
export interface PartField {
  readonly field: string;
  readonly value: string;
}

/** A part of a topic: the documents whose fields all have these values, in the order of `by`, or the one with a key (`doc_key`). */
export type TopicPart = readonly [PartField, ...PartField[]];

/** A topic, or a part of it, that a client can follow. */
export interface Followable {
  readonly model: Model;
  readonly part: TopicPart | undefined;
}

/** The largest value that has an index entry; documents with longer ones are in no part. */
const MAX_VALUE_BYTES = 200;

/** The name of a part as clients send it: `topic?field=value`, with further fields after "&". */
export function partName(topic: string, part: TopicPart): string {
  return `${topic}?${partQuery(part)}`;
}

/** Identifies a part of a topic: its fields, in the order of their names. */
export function partQuery(part: TopicPart): string {
  const fields = [...part].sort((a, b) => (a.field < b.field ? -1 : 1));
  return fields.map(({ field, value }) => `${field}=${encodeURIComponent(value)}`).join("&");
}

/** The key of a part that is a single document. */
export function docKeyOf([{ field, value }]: TopicPart): string | undefined {
  return field === KEY_FIELD ? value : undefined;
}

/** The bounds of a part, or of the whole topic: rows from before a part was declared do not say whether they are of it. */
export function boundsFor<B extends { readonly floor: bigint; readonly partsFloor: bigint }>(
  part: TopicPart | undefined,
  bounds: B,
): B {
  return part && docKeyOf(part) === undefined ? { ...bounds, floor: bounds.partsFloor } : bounds;
}

/** A field of a part as the journal names it. */
export function partLabel({ field, value }: PartField): string {
  return `${field}=${value}`;
}

/** The topic in the name of a topic or a part. */
export function topicOf(name: string): string {
  const at = name.indexOf("?");
  return at < 0 ? name : name.slice(0, at);
}

/** Reads the name of a topic or a part; throws not_found for a topic without a model, and invalid_request for an undeclared part. */
export function readFollowable(models: Models, name: string): Followable {
  const topic = topicOf(name);
  const model = models.byTopic(topic);
  if (!model)
    throw new KhalaError("not_found", `There is no topic "${topic.slice(0, 200)}".`, { field: "topics" });
  if (topic === name) return { model, part: undefined };
  const pairs = [...new URLSearchParams(name.slice(topic.length + 1))];
  const part = readPart(
    model,
    pairs.map(([field, value]) => ({ field, value })),
    "topics",
  );
  if (!part) throw invalid(`A part of ${topic} must look like ${topic}?<field>=<value>.`);
  if (partName(topic, part) !== name)
    throw invalid(
      `The part must be written ${partName(topic, part)}: fields sorted by name, values encoded as by encodeURIComponent.`,
    );
  return { model, part };
}

/** The part with these fields; undefined without any. Throws invalid_request, for the field or for what it was `sentAs`. */
export function readPart(model: Model, fields: readonly PartField[], sentAs?: string): TopicPart | undefined {
  const names = fields.map(({ field }) => field);
  for (const each of fields) checkField(model, each, sentAs ?? each.field);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  const more = twice ?? (names.includes(KEY_FIELD) ? names.find((name) => name !== KEY_FIELD) : undefined);
  if (more !== undefined)
    throw new KhalaError(
      "invalid_request",
      `A part may have each field once, and doc_key only without other fields. Leave ${more} out.`,
      {
        field: sentAs ?? more,
      },
    );
  const [first, ...rest] = [...fields].sort((a, b) => model.by.indexOf(a.field) - model.by.indexOf(b.field));
  return first && [first, ...rest];
}

/** Throws invalid_request for a field that the model does not declare, or a value that no document can have. */
function checkField(model: Model, { field, value }: PartField, sentAs: string): void {
  const refused = (message: string) => new KhalaError("invalid_request", message, { field: sentAs });
  if (field !== KEY_FIELD && !model.by.includes(field)) {
    const declared = [...model.by, KEY_FIELD].map((name) => `${model.topic}?${name}=<value>`).join(" and ");
    throw refused(
      `${model.topic} has no parts by ${JSON.stringify(field.slice(0, 100))}; it has ${declared}. Declare the field in \`by\` of its model.`,
    );
  }
  if (field === KEY_FIELD && !isKeyOf(model, value))
    throw refused(`doc_key must be a key of ${model.topic}, which starts with "${model.prefix}:".`);
  if (
    field !== KEY_FIELD &&
    (Buffer.byteLength(value) > MAX_VALUE_BYTES || value.includes("\0") || !value.isWellFormed())
  )
    throw refused(
      `The value of ${field} must be Unicode text without NUL, of at most ${MAX_VALUE_BYTES} bytes.`,
    );
}

function invalid(message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field: "topics" });
}
