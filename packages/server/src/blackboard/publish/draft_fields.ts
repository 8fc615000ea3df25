import type { ArtifactDraftJson, VisibilityJson } from "@khala/contracts/blackboard/v1";
import { AGENT_NAME, ARTIFACT_TYPE } from "../model/names.ts";

/** A validation error of a draft, and its field. */
export interface Problem {
  readonly field: string;
  readonly message: string;
}

/** The validated, normalized fields of a draft except its payload. An empty text counts as absent. */
export interface DraftFields {
  readonly id: string | undefined;
  readonly type: string;
  readonly correlation_id: string | undefined;
  readonly partition_key: string | undefined;
  readonly tags: string[];
  readonly visibility: VisibilityJson;
  readonly version: number;
  /** Milliseconds since the epoch. */
  readonly notBefore: number | undefined;
}

const FIELDS = Object.keys({
  id: true,
  type: true,
  payload: true,
  correlation_id: true,
  partition_key: true,
  tags: true,
  visibility: true,
  version: true,
  not_before: true,
} satisfies { readonly [Field in keyof Required<ArtifactDraftJson>]: true });
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const RFC_3339 = /^(\d{4}-\d{2}-\d{2})T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/i;
const CONTROL = /\p{Cc}/u;
const MAX_LIST = 32;
const MAX_NAME = 64;
const MAX_KEY = 256;
const MAX_VERSION = 2 ** 31 - 1;

/** Reads a draft of unknown shape, and adds validation errors to `problems`. */
export function readFields(draft: unknown, problems: Problem[]): DraftFields | undefined {
  if (!isRecord(draft)) {
    problems.push({ field: "", message: 'must be an object such as {"type":"Draft","payload":{}}' });
    return undefined;
  }
  const before = problems.length;
  const bad = (field: string, message: string) => {
    problems.push({ field, message });
    return undefined;
  };
  unknownFields(draft, FIELDS, "", bad);
  const { type, id } = draft;
  if (typeof type !== "string" || !ARTIFACT_TYPE.test(type)) {
    bad("type", 'must be a letter, then letters, digits, "_", ".", ":" or "-", up to 128, such as "Draft"');
  }
  if (id != null && (typeof id !== "string" || !UUID.test(id))) {
    bad("id", "must be a UUID; leave it out to get a new one");
  }
  const fields = {
    id: typeof id === "string" ? id.toLowerCase() : undefined,
    type: typeof type === "string" ? type : "",
    correlation_id: key(draft, "correlation_id", bad),
    partition_key: key(draft, "partition_key", bad),
    tags: names(draft.tags, "tags", bad),
    visibility: visibility(draft.visibility, bad),
    version: version(draft.version, bad),
    notBefore: moment(draft.not_before, bad),
  };
  return problems.length === before ? fields : undefined;
}

type Bad = (field: string, message: string) => undefined;

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unknownFields(value: object, known: readonly string[], at: string, bad: Bad): void {
  for (const name of Object.keys(value)) {
    if (!known.includes(name)) bad(at + name.slice(0, MAX_NAME), `is not one of ${known.join(", ")}`);
  }
}

function key(draft: Record<string, unknown>, field: string, bad: Bad): string | undefined {
  const value = draft[field] ?? "";
  if (typeof value === "string" && isText(value, MAX_KEY)) return value || undefined;
  return bad(field, `must be a string of at most ${MAX_KEY} characters, without control characters`);
}

function names(value: unknown, field: string, bad: Bad): string[] {
  const list: unknown = value ?? [];
  if (!Array.isArray(list) || list.length > MAX_LIST) {
    bad(field, `must be a list of at most ${MAX_LIST} strings`);
    return [];
  }
  for (const [index, name] of list.entries()) {
    if (typeof name !== "string" || name === "" || !isText(name, MAX_NAME)) {
      bad(
        `${field}[${index}]`,
        `must be a string of 1 to ${MAX_NAME} characters, without control characters`,
      );
    } else if (list.indexOf(name) !== index) bad(`${field}[${index}]`, "is there already");
  }
  return [...list];
}

function visibility(value: unknown, bad: Bad): VisibilityJson {
  if (value == null) return { kind: "org" };
  if (!isRecord(value)) {
    bad("visibility", 'must be an object such as {"kind":"org"}');
    return {};
  }
  unknownFields(value, ["kind", "labels", "agents"], "visibility.", bad);
  const { kind } = value;
  const labels = names(value.labels, "visibility.labels", bad);
  const agents = names(value.agents, "visibility.agents", bad);
  if (kind !== "public" && kind !== "org" && kind !== "labelled" && kind !== "private") {
    bad("visibility.kind", 'must be "public", "org", "labelled" or "private"');
    return {};
  }
  if ((kind === "labelled") !== labels.length > 0) {
    bad("visibility.labels", `${kind === "labelled" ? "must have a label" : `are not for "${kind}"`}`);
  }
  if ((kind === "private") !== agents.length > 0) {
    bad("visibility.agents", `${kind === "private" ? "must name an agent" : `are not for "${kind}"`}`);
  }
  for (const [index, name] of agents.entries()) {
    if (!AGENT_NAME.test(name)) bad(`visibility.agents[${index}]`, "cannot be the name of an agent");
  }
  return { kind, ...(kind === "labelled" && { labels }), ...(kind === "private" && { agents }) };
}

function version(value: unknown, bad: Bad): number {
  if (value == null) return 1;
  if (typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= MAX_VERSION)
    return value;
  bad("version", `must be a whole number from 1 to ${MAX_VERSION}`);
  return 1;
}

function moment(value: unknown, bad: Bad): number | undefined {
  if (value == null) return undefined;
  const day = typeof value === "string" ? RFC_3339.exec(value)?.[1] : undefined;
  const time = day ? Date.parse(String(value).toUpperCase()) : Number.NaN;
  // Date.parse takes February 30 for March 2.
  const midnight = Date.parse(`${day}T00:00:00Z`);
  const real = !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(`${day}T`);
  if (!Number.isNaN(time) && real) return time;
  return bad("not_before", "must be a time as in RFC 3339, such as 2026-01-31T07:00:00Z");
}

function isText(text: string, length: number): boolean {
  return text.length <= length && !CONTROL.test(text) && text.isWellFormed();
}
