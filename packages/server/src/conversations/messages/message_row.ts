import type { PartJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Cursor } from "../log/cursor.ts";

/** A row of `runtime.messages`. */
export interface MessageRow {
  readonly message_id: string;
  readonly parent_id: string | null;
  readonly role: string;
  readonly author: string | null;
  readonly run_id: string | null;
  readonly parts: PartJson[];
  readonly status: string;
  readonly created_at: string;
  readonly log_epoch: string | null;
  readonly log_seq: bigint | null;
  readonly log_time: bigint | null;
  /** All with the same parent in order, if there are several. Only rows of a page have them. */
  readonly siblings?: readonly string[] | null;
  /** The messages that follow the last one of a page. */
  readonly replies?: readonly string[] | null;
}

/** A time as clients get it. */
export const isoTime = (column: string) =>
  `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** The words of parts for search, of a conversation of this owner. */
export const wordsOf = (org: string, owner: string, parts: string) =>
  `runtime.search_words(${org}, ${owner}, (SELECT string_agg(coalesce(p ->> 'text', p -> 'file' ->> 'name'), ' ')
    FROM jsonb_array_elements(${parts}) p))`;

/** The columns of a row, of the table `m`. */
export const MESSAGE = `m.message_id, m.parent_id, m.role, m.author, m.run_id, m.status, m.log_epoch, m.log_seq, m.log_time,
  ${isoTime("m.created_at")} AS created_at`;

/** The ids of the messages that follow a parent, which may be null, as an array; null when there are none. */
export const childrenOf = (org: string, conv: string, parent: string) => {
  const children = (where: string) => `(SELECT array_agg(s.message_id ORDER BY s.inserted_at, s.message_id)
    FROM runtime.messages s WHERE s.org_id = ${org} AND s.conv_id = ${conv} AND s.parent_id ${where})`;
  return `CASE WHEN ${parent} IS NULL THEN ${children("IS NULL")} ELSE ${children(`= ${parent}`)} END`;
};

/** The message of a row, as the fold makes it. */
export function messageOf(row: MessageRow): TranscriptMessageJson {
  const { message_id, parent_id, role, author, run_id, parts, status, created_at, siblings, replies } = row;
  return {
    message_id,
    role,
    run_id: run_id ?? "",
    parts,
    status,
    ...(parent_id && { parent_id }),
    ...(author && { author }),
    created_at,
    ...(siblings && siblings.length > 1 && { siblings: [...siblings] }),
    ...(replies && { replies: [...replies] }),
  };
}

/** A value as jsonb, which cannot hold NUL characters and halves of surrogate pairs: each becomes U+FFFD. */
export function jsonb(value: unknown): string {
  const text = JSON.stringify(value);
  if (!/\\u0000|\\ud[89a-f]/i.test(text)) return text;
  const clean = (part: string) => part.toWellFormed().replaceAll("\0", "\ufffd");
  return JSON.stringify(value, (_, part) => {
    if (typeof part === "string") return clean(part);
    if (typeof part !== "object" || part === null || Array.isArray(part)) return part;
    return Object.fromEntries(Object.entries(part).map(([key, of]) => [clean(key), of]));
  });
}

/** The position up to which a row holds the events. */
export function positionOf({ log_epoch, log_seq, log_time }: MessageRow): Cursor | undefined {
  if (log_epoch === null || log_seq === null) return undefined;
  return { epoch: log_epoch, seq: log_seq, time: Number(log_time ?? 0n) };
}
