import { canonicalJson, INEXACT_INTEGER, inexactInteger, KhalaError } from "@khala/contracts";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { type Clock, isoTime } from "../../kit/clock.ts";
import { validate } from "../../kit/standard_schema.ts";
import type { Artifact, ArtifactDraft } from "../model/artifact.ts";
import { type DraftFields, type Problem, readFields } from "./draft_fields.ts";

/** The producer of an artifact, and what the artifact inherits from it. */
export interface Author {
  readonly org: string;
  /** "agent:<name>", "user:<subject>" or "schedule:<name>". */
  readonly producedBy: string;
  /** W3C trace context. */
  readonly trace?: string | undefined;
  readonly depth: number;
  /** For drafts without one. */
  readonly correlationId?: string | undefined;
  /** The conversation that the work belongs to. */
  readonly conversation?: Artifact["conversation"];
}

/** How drafts are validated. */
export interface DraftRules {
  readonly schemas: Readonly<Record<string, StandardSchemaV1>>;
  readonly clock: Clock;
  /** The id for a draft without one. */
  readonly newId: (index: number) => string;
  /** The name of the list in errors; default "artifacts". */
  readonly label?: string;
  readonly limits?: Partial<DraftLimits>;
}

/** Limits of a publication. */
export interface DraftLimits {
  readonly drafts: number;
  /** The limit of one payload's JSON. A Kafka record is 1 MiB, and also holds the task or dead letter around it. */
  readonly payloadBytes: number;
  /** The timeout of an asynchronous schema. */
  readonly schemaMs: number;
}

/** An artifact, and when it is published if not now. */
export interface MadeArtifact {
  readonly artifact: Artifact;
  /** Milliseconds since the epoch, in the future. */
  readonly notBefore?: number;
}

export const DRAFT_LIMITS: DraftLimits = { drafts: 1_000, payloadBytes: 960 * 1_024, schemaMs: 5_000 };

const MAX_PROBLEMS = 100;
/** A NUL, which PostgreSQL cannot store; not an escaped backslash followed by "u0000". */
const NUL = /(?<!\\)(?:\\\\)*\\u0000/;
const TOO_LARGE = "too large";

interface Checked {
  readonly fields: DraftFields;
  readonly payload: Artifact["payload"];
}

/** Turns drafts into artifacts: all of them, or an error that names the invalid ones. */
export async function makeArtifacts(
  drafts: readonly ArtifactDraft[],
  author: Author,
  rules: DraftRules,
): Promise<MadeArtifact[]> {
  const { label = "artifacts" } = rules;
  const limits = { ...DRAFT_LIMITS, ...rules.limits };
  if (drafts.length > limits.drafts) {
    throw new KhalaError(
      "invalid_request",
      `A request may publish at most ${limits.drafts} artifacts. Send several requests.`,
      {
        field: label,
      },
    );
  }
  const problems: Problem[][] = drafts.map(() => []);
  const checking = drafts.map((draft, index) => check(draft, problems[index]!, rules, limits));
  const checked = await allOf(checking);
  findTwins(checked, problems, label);
  refuse(problems, label);
  const now = rules.clock.now();
  return checked.map((each, index) => make(each!, author, rules.newId, index, now));
}

/** Avoids a microtask per draft: most have no schema, or a synchronous one. */
function allOf<T>(all: readonly (T | Promise<T>)[]): readonly T[] | Promise<T[]> {
  const isThere = (each: T | Promise<T>): each is T => !(each instanceof Promise);
  return all.every(isThere) ? all : Promise.all(all);
}

function check(
  draft: unknown,
  problems: Problem[],
  rules: DraftRules,
  limits: DraftLimits,
): Checked | undefined | Promise<Checked | undefined> {
  const fields = readFields(draft, problems);
  if (!fields) return undefined;
  const { payload: said } = draft as ArtifactDraft;
  if (said === undefined) {
    problems.push({ field: "payload", message: "is missing; to publish no data, send null" });
    return undefined;
  }
  // Checked before the schema runs, which need not handle payloads that are too large or not JSON.
  if (!isStorable(said, problems, limits)) return undefined;
  const schema = Object.hasOwn(rules.schemas, fields.type) ? rules.schemas[fields.type] : undefined;
  if (!schema) return { fields, payload: said };
  const take = (payload: unknown): Checked | undefined =>
    isStorable(payload, problems, limits) ? { fields, payload } : undefined;
  return validPayload(schema, said, problems, rules.clock, limits).then(take);
}

/** The payload after the schema's defaults and conversions. */
async function validPayload(
  schema: StandardSchemaV1,
  payload: unknown,
  problems: Problem[],
  clock: Clock,
  limits: DraftLimits,
): Promise<unknown> {
  const result = await validate(schema, payload, { clock, timeoutMs: limits.schemaMs });
  if (!result.issues) return result.value;
  for (const { path, message } of result.issues.slice(0, MAX_PROBLEMS))
    problems.push({ field: `payload${path}`, message });
  return null;
}

/** Whether every backend can store the payload as JSON: its nesting, its Unicode, its size. */
function isStorable(
  payload: unknown,
  problems: Problem[],
  limits: DraftLimits,
): payload is Artifact["payload"] {
  try {
    const text = canonicalJson(payload);
    const bytes = Buffer.byteLength(text);
    if (bytes > limits.payloadBytes) {
      const message = `is ${TOO_LARGE}: ${bytes} bytes of ${limits.payloadBytes}; publish a link to it instead`;
      problems.push({ field: "payload", message });
      return false;
    }
    const rounded = inexactInteger(text);
    if (rounded !== undefined)
      problems.push({ field: `payload${stepsTo(rounded)}`, message: INEXACT_INTEGER });
    else if (!text.includes("\\u0000") || !NUL.test(text)) return true;
    else problems.push({ field: "payload", message: "must not contain the character NUL" });
  } catch (error) {
    if (!(error instanceof KhalaError)) throw error;
    const { field = "" } = error.details;
    problems.push({
      field: `payload${stepsTo(field)}`,
      message: error.message.replace(/^.*? cannot/s, "cannot"),
    });
  }
  return false;
}

/** A field of the payload, to be written after its name. */
function stepsTo(field: string): string {
  return field === "" || field.startsWith("[") ? field : `.${field}`;
}

/** Refuses an id and version that occur twice in one call, because only one could be published. */
function findTwins(
  checked: readonly (Checked | undefined)[],
  problems: readonly Problem[][],
  label: string,
): void {
  const first = new Map<string, number>();
  for (const [index, each] of checked.entries()) {
    if (!each?.fields.id) continue;
    const name = `${each.fields.id}:${each.fields.version}`;
    const twin = first.get(name);
    if (twin === undefined) first.set(name, index);
    else
      problems[index]!.push({ field: "id", message: `is that of ${label}[${twin}], and so is the version` });
  }
}

function refuse(problems: readonly Problem[][], label: string): void {
  if (problems.every((each) => each.length === 0)) return;
  const items = problems
    .flatMap((each, index) => each.map((problem) => ({ index, ...problem })))
    .slice(0, MAX_PROBLEMS);
  const worst = items[0]!;
  const wrong = problems.filter((each) => each.length > 0).length;
  const field = `${label}[${worst.index}]${worst.field && `.${worst.field}`}`;
  const scale = problems.length === 1 ? "" : ` (${wrong} of ${problems.length} are wrong, none is published)`;
  const tooLarge = items.every(({ message }) => message.startsWith(`is ${TOO_LARGE}`));
  throw new KhalaError(
    tooLarge ? "payload_too_large" : "invalid_request",
    `${field} ${worst.message}${scale}.`,
    { field, items },
  );
}

function make(
  { fields, payload }: Checked,
  author: Author,
  newId: DraftRules["newId"],
  index: number,
  now: number,
): MadeArtifact {
  const artifact: Writable<Artifact> = {
    id: fields.id ?? newId(index),
    type: fields.type,
    payload,
    tags: fields.tags,
    produced_by: author.producedBy,
    visibility: fields.visibility,
    version: fields.version,
    created_at: isoTime(now),
    org_id: author.org,
    depth: author.depth,
  };
  const correlation = fields.correlation_id ?? author.correlationId;
  if (correlation) artifact.correlation_id = correlation;
  if (fields.partition_key) artifact.partition_key = fields.partition_key;
  if (author.trace) artifact.traceparent = author.trace;
  if (author.conversation) artifact.conversation = author.conversation;
  const { notBefore = now } = fields;
  return notBefore > now ? { artifact, notBefore } : { artifact };
}

type Writable<T> = { -readonly [Field in keyof T]: T[Field] };
