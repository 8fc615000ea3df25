import { KhalaError } from "@khala/contracts";
import type { ConversationSummaryJson } from "@khala/contracts/conversation/v1";
import type { FailedRunJson } from "@khala/contracts/ops/v1";
import { notFound } from "../access/access.ts";
import type { Caller } from "../access/viewer.ts";
import type { Database } from "../database/database.ts";
import type { ConversationRef } from "./conversation.ts";
import type { Cursor } from "./log/cursor.ts";
import { formatCursor } from "./log/cursor.ts";
import { type Log, StreamGone } from "./log/log.ts";
import type { ListedConversation, ListPage, LogPage, OwnQuery, PageQuery } from "./plane.ts";
import { runJson } from "./store.ts";
import { eventFrame } from "./timeline/timeline.ts";

const LOG_BYTES = 4 << 20;
/** Ids are hexadecimal. */
const AFTER_ALL_IDS = "z";
const BEGINNING = { seq: 0n, time: 0 };

interface Row {
  readonly convId: string;
  readonly owner: string;
  readonly title: string;
  readonly updatedAt: Date;
  /** `updated_at` in microseconds: a Date would merge rows of one millisecond. */
  readonly sortKey: bigint;
  readonly runId: string | null;
  readonly status: string | null;
  readonly createdAt: Date | null;
  readonly error: string | null;
  readonly errorCode: string | null;
  readonly errorId: string | null;
}

/** The maximum number of matching messages that a search reads. */
const MAX_MATCHES = 10_000;
/** The maximum number of other owners, of conversations that the subject takes part in, whose messages are searched. */
const MAX_OWNERS = 100;

/**
 * The conversations of $5 with a message that has all words of a text, or words that begin with them. The words of the index are
 * those of one owner each, so a search never reads other owners' data.
 */
const found = (q: string) => `(
    SELECT DISTINCT m.conv_id FROM (
      SELECT m.conv_id FROM (
        SELECT $5::text AS owner
        UNION
        (SELECT DISTINCT c.owner FROM runtime.participants p
          JOIN runtime.conversations c ON c.org_id = $1 AND c.conv_id = p.conv_id
          WHERE p.subject || ' ' || p.org_id = $5 || ' ' || $1 AND p.org_id = $1 AND p.subject = $5 LIMIT ${MAX_OWNERS})
      ) whose
      CROSS JOIN LATERAL (
        SELECT string_agg(quote_literal(w) || ':*', ' & ')::tsquery AS query
        FROM unnest(tsvector_to_array(runtime.search_words($1, whose.owner, ${q}))) w
      ) wanted
      CROSS JOIN LATERAL (
        SELECT m.conv_id FROM runtime.messages m
        WHERE m.words @@ wanted.query AND m.words IS NOT NULL AND m.org_id = $1 LIMIT ${MAX_MATCHES}
      ) m
    ) m
  ) found JOIN runtime.conversations c ON c.org_id = $1 AND c.conv_id = found.conv_id
  WHERE (c.owner = $5 OR EXISTS (SELECT FROM runtime.participants p
    WHERE p.org_id = $1 AND p.conv_id = c.conv_id AND p.subject = $5))`;

/** A page of conversations, newest first: those that a person owns or takes part in, or all of the org. */
async function list(
  database: Database,
  org: string,
  owner: string | undefined,
  { after, limit, status, q }: OwnQuery,
): Promise<{ rows: Row[]; next: string | undefined }> {
  const { sortKey, convId } = readPageStart(after);
  const values: unknown[] = [org, sortKey, convId, limit + 1];
  const given = (value: unknown) => `$${values.push(value)}`;
  if (owner !== undefined) values.push(owner);
  const statuses = status && `${given(status)}::text[]`;
  const ofStatus = statuses ? `AND c.run_status = ANY (${statuses})` : "";
  const newest = (from: string) => `
        SELECT c.org_id, c.conv_id, c.owner, c.title, c.updated_at, c.run_id,
          (extract(epoch FROM c.updated_at) * 1000000)::bigint AS sort_key
        FROM ${from} AND c.removed_at IS NULL
          AND (c.updated_at, c.conv_id) < (timestamptz 'epoch' + $2::bigint * interval '1 microsecond', $3)
        ORDER BY c.updated_at DESC, c.conv_id DESC LIMIT $4`;
  const ofOrg = "runtime.conversations c WHERE c.org_id = $1";
  const own = statuses
    ? `SELECT c.* FROM unnest(${statuses}) AS s(status)
        CROSS JOIN LATERAL (${newest(`${ofOrg} AND c.owner = $5 AND c.run_status = s.status`)}) c`
    : newest(`${ofOrg} AND c.owner = $5`);
  const shared =
    newest(`runtime.participants p JOIN runtime.conversations c ON c.org_id = $1 AND c.conv_id = p.conv_id
        WHERE p.subject || ' ' || p.org_id = $5 || ' ' || $1 AND p.org_id = $1 AND p.subject = $5 ${ofStatus}`);
  const [name, from] =
    owner === undefined
      ? ["conversations_of_org", newest(ofOrg)]
      : q !== undefined
        ? ["conversations_with_words", newest(`${found(given(q))} ${ofStatus}`)]
        : [
            "conversations_of_owner",
            `SELECT * FROM ((${own}) UNION ALL (${shared})) c
          ORDER BY c.updated_at DESC, c.conv_id DESC LIMIT $4`,
          ];
  const rows = await database.query<Row>({
    name: status ? `${name}_status` : name,
    text: `
      SELECT c.conv_id AS "convId", c.owner, coalesce(c.title, '') AS title, c.updated_at AS "updatedAt", c.sort_key AS "sortKey",
        r.run_id AS "runId", r.status, r.created_at AS "createdAt", r.error, r.error_code AS "errorCode", r.error_id AS "errorId"
      FROM (${from}
      ) c
      LEFT JOIN LATERAL (
        SELECT run_id, status, created_at, error, error_code, error_id FROM runtime.conversation_runs
        WHERE org_id = c.org_id AND run_id = coalesce(c.run_id, (
          SELECT max(n.run_id) FROM runtime.conversation_runs n WHERE n.org_id = c.org_id AND n.conv_id = c.conv_id))
      ) r ON true
      ORDER BY c.sort_key DESC, c.conv_id DESC`,
    values,
  });
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  return { rows: page, next: last && rows.length > limit ? `${last.sortKey} ${last.convId}` : undefined };
}

/** The conversations that the caller owns or takes part in. */
export async function listOwn(
  database: Database,
  { org, subject }: Caller,
  query: OwnQuery,
): Promise<ListPage<ConversationSummaryJson>> {
  const { rows, next } = await list(database, org, subject, query);
  const conversations = rows.map(
    ({
      convId,
      title,
      updatedAt,
      runId,
      status,
      createdAt,
      error,
      errorCode,
      errorId,
    }): ConversationSummaryJson => ({
      conv_id: convId,
      title,
      updated_at: updatedAt.toISOString(),
      ...(runId && {
        run: runJson({
          run_id: runId,
          status: status!,
          created_at: createdAt!.toISOString(),
          error,
          error_code: errorCode,
          error_id: errorId,
        }),
      }),
    }),
  );
  return { conversations, next };
}

/** The conversations of an org, without their content. */
export async function listOfOrg(
  database: Database,
  org: string,
  query: PageQuery,
): Promise<ListPage<ListedConversation>> {
  const { rows, next } = await list(database, org, undefined, query);
  const conversations = rows.map(({ convId, owner, updatedAt, status }) => ({
    convId,
    owner,
    updatedAt: updatedAt.toISOString(),
    runStatus: status ?? "",
  }));
  return { conversations, next };
}

/** The runs of an org that an exception ended, newest first; or the one with an error id. */
export async function listFailedRuns(
  database: Database,
  org: string,
  { after, limit, errorId }: PageQuery & { readonly errorId: string | undefined },
): Promise<{ runs: FailedRunJson[]; next: string | undefined }> {
  const rows = await database.query<Required<FailedRunJson>>({
    name: errorId === undefined ? "conversation_failed_runs" : "conversation_failed_run",
    text: `SELECT error_id, run_id, conv_id, subject, error_code AS code, error AS message, coalesce(error_detail, '') AS detail,
        to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS failed_at
      FROM runtime.conversation_runs
      WHERE org_id = $1 AND error_id IS NOT NULL AND ${errorId === undefined ? "error_id < $2" : "error_id = $2"}
      ORDER BY error_id DESC LIMIT $3`,
    values: [org, errorId ?? (after || AFTER_ALL_IDS), limit + 1],
  });
  const runs = rows.slice(0, limit);
  return { runs, next: rows.length > limit ? runs.at(-1)!.error_id : undefined };
}

/** A page of a conversation's log after a cursor, or from its oldest entry, as sockets get it. */
export async function readLogPage(
  log: Log,
  { convId, logName, generation }: ConversationRef,
  after: Cursor | undefined,
  limit: number,
): Promise<LogPage> {
  // A late writer of a deleted conversation may have left entries under this name: opening removes them.
  const opened = await log.open(logName, generation).catch((error) => {
    if (error instanceof StreamGone) throw notFound("conversation", convId);
    throw error;
  });
  const page = await log.read(logName, after ?? BEGINNING, { entries: limit, bytes: LOG_BYTES });
  if (page?.epoch !== opened.epoch) return { events: [], next: undefined };
  const { epoch, head, entries } = page;
  const first = entries[0]?.seq ?? head.seq + 1n;
  if (after && (after.epoch !== epoch || after.seq > head.seq || first !== after.seq + 1n)) throw stale();
  const last = entries.at(-1);
  return {
    events: entries.map((entry) => eventFrame(convId, epoch, entry).json),
    next: last && last.seq < head.seq ? formatCursor({ epoch, ...last }) : undefined,
  };
}

/** Reads `next` of the previous page; the first page without it. */
function readPageStart(after: string): { sortKey: bigint; convId: string } {
  if (after === "") return { sortKey: 9_000_000_000_000_000n, convId: "" };
  const match = /^(\d{1,16}) (\S{1,128})$/.exec(after);
  if (match) return { sortKey: BigInt(match[1]!), convId: match[2]! };
  throw new KhalaError("invalid_request", "`after` must be the `next` of the previous page, unchanged.", {
    field: "after",
  });
}

function stale(): KhalaError {
  const message =
    "Entries after this cursor were deleted. Read the log from its beginning, without a cursor.";
  return new KhalaError("stale_cursor", message);
}
