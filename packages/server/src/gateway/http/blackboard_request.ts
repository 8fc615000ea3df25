import { toJson } from "@bufbuild/protobuf";
import { KhalaError } from "@khala/contracts";
import {
  ApprovalDecisionSchema,
  type ArtifactDraftJson,
  ClaimRequestSchema,
  type FailureJson,
  ReplayAllRequestSchema,
  ReplayRequestSchema,
  type SettleRequestJson,
  SettleRequestSchema,
} from "@khala/contracts/blackboard/v1";
import type { ArtifactDraft } from "../../blackboard/model/artifact.ts";
import type { BlackboardPlane, DeadLetterQuery } from "../../blackboard/plane.ts";
import { type Problem, readFields } from "../../blackboard/publish/draft_fields.ts";
import { invalid } from "../../kit/invalid.ts";
import { readLimit, readMessage } from "./read_request.ts";

const MAX_ARTIFACTS = 1_000;
/** At most this many problems are listed in one error. */
const MAX_ITEMS = 100;
const FIRST = "artifacts[0]";
const MAX_CLAIMS = 100;
const MAX_WAIT_MS = 30_000;
const MAX_RETRY_AFTER_MS = 24 * 3_600_000;
const FAILURES = ["retryable", "fatal", "rate_limited"];
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The query of a request, with the parameters that its route names. */
type Query = Readonly<Record<string, unknown>>;
type ClaimAsk = Parameters<BlackboardPlane["claim"]>[2];
type ReplayWhich = Parameters<BlackboardPlane["replayAll"]>[2];
type Decision = Parameters<BlackboardPlane["decide"]>[2];

/** Reads the drafts to publish: one, or `artifacts` with several. The plane validates each. */
export function readDrafts(body: unknown): { drafts: ArtifactDraft[]; alone: boolean } {
  if (!isObject(body)) throw invalid("", 'Send one artifact, or {"artifacts":[…]} with several.');
  if (!("artifacts" in body)) return { drafts: [body as ArtifactDraft], alone: true };
  const { artifacts, ...others } = body;
  const [other] = Object.keys(others);
  if (other !== undefined)
    throw invalid(other, `The request has both artifacts and ${other}. Put ${other} into each artifact.`);
  if (!Array.isArray(artifacts) || artifacts.length < 1 || artifacts.length > MAX_ARTIFACTS)
    throw invalid("artifacts", `artifacts must be a list of 1 to ${MAX_ARTIFACTS} items.`);
  return { drafts: artifacts as ArtifactDraft[], alone: false };
}

/** The error of a draft that was sent without a list: its fields have no index. */
export function asSentAlone(error: unknown): unknown {
  if (!(error instanceof KhalaError) || !error.details.field?.startsWith(FIRST)) return error;
  const { code, details, message } = error;
  const short = (text: string) => text.replace(FIRST, "").replace(/^\./, "");
  const field = short(details.field ?? "");
  return new KhalaError(code, short(message).trim(), { ...details, field }, { cause: error });
}

/** Reads what a worker settles its claim with. */
export function readSettlement(body: unknown): SettleRequestJson {
  const { outputs = [], ...rest } = isObject(body) ? body : {};
  const { failure, retry_after_ms } = toJson(
    SettleRequestSchema,
    readMessage(SettleRequestSchema, isObject(body) ? rest : body),
  );
  if (!Array.isArray(outputs) || outputs.length > MAX_ARTIFACTS)
    throw invalid("outputs", `outputs must be a list of at most ${MAX_ARTIFACTS} items.`);
  if (!failure) {
    if (retry_after_ms !== undefined)
      throw invalid("retry_after_ms", "retry_after_ms is only allowed in a failure of kind rate_limited.");
    return { outputs: readOutputs(outputs) };
  }
  if (outputs.length > 0) throw invalid("outputs", "Settle with outputs or a failure, not with both.");
  return { failure: readFailure(failure), ...retryAfter(failure.kind, retry_after_ms) };
}

/** Reads who asks for how much work. */
export function readClaim(body: unknown): ClaimAsk {
  const { worker, max = 1, waitMs = 0 } = readMessage(ClaimRequestSchema, body);
  if (!isName(worker, 200))
    throw invalid("worker", "worker must be a name of 1 to 200 characters, without control characters.");
  if (max < 1 || max > MAX_CLAIMS)
    throw invalid("max", `max must be a whole number from 1 to ${MAX_CLAIMS}.`);
  if (waitMs < 0 || waitMs > MAX_WAIT_MS)
    throw invalid("wait_ms", `wait_ms must be a whole number from 0 to ${MAX_WAIT_MS}.`);
  return { worker, max, waitMs };
}

/** Reads the payload of a replay; undefined keeps the original. */
export function readReplay(body: unknown): { payload: unknown } | undefined {
  readMessage(ReplayRequestSchema, body);
  return isObject(body) && "payload" in body ? { payload: body.payload } : undefined;
}

/** Reads which dead letters are to be replayed. */
export function readReplayAll(body: unknown): ReplayWhich {
  const { correlationId, ids } = readMessage(ReplayAllRequestSchema, body);
  if (correlationId !== undefined && ids.length > 0)
    throw invalid("ids", "Send ids or correlation_id, not both. Send neither to replay all.");
  if (ids.length > MAX_ARTIFACTS || !ids.every((id) => UUID.test(id)))
    throw invalid("ids", `ids must be a list of at most ${MAX_ARTIFACTS} ids of dead letters.`);
  // An empty list that was sent means none; it must not become all.
  const none = ids.length === 0 && isObject(body) && Array.isArray(body.ids);
  return {
    ...((ids.length > 0 || none) && { ids }),
    ...(correlationId !== undefined && { correlationId: readCorrelationId(correlationId) }),
  };
}

/** Reads the decision on an approval; `approved` is required. */
export function readDecision(body: unknown): Decision {
  const { approved, reason } = readMessage(ApprovalDecisionSchema, body);
  if (!isObject(body) || typeof body.approved !== "boolean")
    throw invalid("approved", "approved must be true or false.");
  if (reason !== undefined && !isName(reason, 1_000))
    throw invalid("reason", "reason must have 1 to 1000 characters, without control characters.");
  return { approved, ...(reason !== undefined && { reason }) };
}

/** Reads the query of a list of dead letters. */
export function readDeadLetterQuery(query: unknown): DeadLetterQuery {
  const { limit, after, correlation_id } = Object(query) as Query;
  if (after !== undefined && !isName(after, 500))
    throw invalid("after", "after must be the unchanged `next` of the previous page.");
  return {
    limit: readLimit(limit),
    ...(after !== undefined && { after }),
    ...(correlation_id !== undefined && { correlationId: readCorrelationId(correlation_id) }),
  };
}

/** Reads the query of a list of artifacts. */
export function readRecent(query: unknown): { type?: string; correlationId?: string; limit: number } {
  const { limit, type, correlation_id } = Object(query) as Query;
  if (type !== undefined && !isName(type, 200)) throw invalid("type", "type must be one artifact type.");
  return {
    limit: readLimit(limit),
    ...(type !== undefined && { type }),
    ...(correlation_id !== undefined && { correlationId: readCorrelationId(correlation_id) }),
  };
}

/** Reads the query of one artifact: its org, if it is that of another. */
export function readArtifactQuery(query: unknown): { org_id?: string } {
  const { org_id } = Object(query) as Query;
  if (org_id === undefined) return {};
  if (!isName(org_id, 256))
    throw invalid("org_id", "org_id must be the org of a public artifact, given once.");
  return { org_id };
}

/** Reads a correlation's id. */
export function readCorrelationId(sent: unknown): string {
  if (isName(sent, 256)) return sent;
  throw invalid(
    "correlation_id",
    "correlation_id must have 1 to 256 characters, without control characters.",
  );
}

/** Whether something may be the id of an artifact, a claim or a dead letter; what is not one is nowhere. */
export function isId(text: string): boolean {
  return UUID.test(text);
}

/** The outputs, if their fields are right. Payloads are checked where the schemas are. */
function readOutputs(outputs: readonly unknown[]): ArtifactDraftJson[] {
  const items = outputs.flatMap((output, index) => {
    const problems: Problem[] = [];
    readFields(output, problems);
    return problems.map((problem) => ({ index, ...problem }));
  });
  const [first] = items;
  if (!first) return outputs as ArtifactDraftJson[];
  const field = `outputs[${first.index}]${first.field && `.${first.field}`}`;
  const message = `${field} ${first.message}. The task is not settled.`;
  throw new KhalaError("invalid_request", message, { field, items: items.slice(0, MAX_ITEMS) });
}

function readFailure({ class: name = "", message = "", stack, kind = "" }: FailureJson): FailureJson {
  if (!isName(name, 200))
    throw invalid("failure.class", "class must be the class of the exception, such as ValueError.");
  if (message === "") throw invalid("failure.message", "message must say what went wrong.");
  if (!FAILURES.includes(kind)) throw invalid("failure.kind", `kind must be one of ${FAILURES.join(", ")}.`);
  return { class: name, message, kind, ...(stack !== undefined && { stack }) };
}

function retryAfter(kind: string | undefined, ms: number | undefined): { retry_after_ms?: number } {
  if (ms === undefined && kind !== "rate_limited") return {};
  if (kind === "rate_limited" && ms !== undefined && ms >= 0 && ms <= MAX_RETRY_AFTER_MS)
    return { retry_after_ms: ms };
  const message = `A failure of kind rate_limited, and no other, needs retry_after_ms: 0 to ${MAX_RETRY_AFTER_MS}.`;
  throw invalid("retry_after_ms", message);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isName(value: unknown, max: number): value is string {
  return typeof value === "string" && value.length <= max && /^\P{Cc}+$/u.test(value);
}
