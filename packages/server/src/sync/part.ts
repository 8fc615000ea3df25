import { KhalaError } from "@khala/contracts";
import { isKeyOf, type Model, type Models } from "./model.ts";
import { KEY_FIELD } from "./model_fields.ts";

/** A part of a topic: the documents whose field has a value, or the one with a key (`doc_key`). */
export interface TopicPart {
  readonly field: string;
  readonly value: string;
}

/** A topic, or a part of it, that a client can follow. */
export interface Followable {
  readonly model: Model;
  readonly part: TopicPart | undefined;
}

/** The largest value that has an index entry; documents with longer ones are in no part. */
const MAX_VALUE_BYTES = 200;

/** The name of a part as clients send it: `topic?field=value`. */
export function partName(topic: string, { field, value }: TopicPart): string {
  return `${topic}?${field}=${encodeURIComponent(value)}`;
}

/** The bounds of a part, or of the whole topic: rows from before a part was declared do not say whether they are of it. */
export function boundsFor<B extends { readonly floor: bigint; readonly partsFloor: bigint }>(
  part: TopicPart | undefined,
  bounds: B,
): B {
  return part && part.field !== KEY_FIELD ? { ...bounds, floor: bounds.partsFloor } : bounds;
}

/** A part as the journal names it. */
export function partLabel({ field, value }: TopicPart): string {
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
  const [pair, ...more] = [...new URLSearchParams(name.slice(topic.length + 1))];
  if (!pair || more.length > 0)
    throw invalid(`A part of ${topic} is written ${topic}?<field>=<value>, with one field.`);
  const part = { field: pair[0], value: pair[1] };
  checkPart(model, part);
  if (partName(topic, part) !== name)
    throw invalid(
      `The name of this part is ${partName(topic, part)}: its value is percent-encoded as by encodeURIComponent.`,
    );
  return { model, part };
}

/** Throws invalid_request for a part that the model does not declare, or that no document can be in. */
export function checkPart(model: Model, { field, value }: TopicPart, sentAs = "topics"): void {
  const refused = (message: string) => new KhalaError("invalid_request", message, { field: sentAs });
  if (field !== KEY_FIELD && !model.by.includes(field)) {
    const declared = [...model.by, KEY_FIELD].map((name) => `${model.topic}?${name}=<value>`).join(" and ");
    throw refused(
      `${model.topic} has no parts by ${JSON.stringify(field.slice(0, 100))}; there are ${declared}. Declare it in \`by\` of its model.`,
    );
  }
  if (field === KEY_FIELD && !isKeyOf(model, value))
    throw refused(`doc_key is a key of ${model.topic}, which starts with "${model.prefix}:".`);
  if (
    field !== KEY_FIELD &&
    (Buffer.byteLength(value) > MAX_VALUE_BYTES || value.includes("\0") || !value.isWellFormed())
  )
    throw refused(`The value of ${field} is Unicode text without NUL of at most ${MAX_VALUE_BYTES} bytes.`);
}

function invalid(message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field: "topics" });
}
