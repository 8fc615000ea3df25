import { KhalaError } from "@khala/contracts";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../database/database.ts";
import { type Clock, sleep } from "../../kit/clock.ts";
import { invalid } from "../../kit/invalid.ts";
import { type ConversationRef, deletedMeanwhile, isId, ROLES, unlessGone } from "../conversation.ts";
import { formatCursor } from "../log/cursor.ts";
import type { Log } from "../log/log.ts";
import { placeBegunMessages } from "../messages/begun_messages.ts";
import { jsonb, MESSAGE, type MessageRow, messageOf, wordsOf } from "../messages/message_row.ts";
import { entryText, MAX_ENTRY_BYTES } from "../runs/run_log.ts";
import { messageIdOf } from "../timeline/timeline.ts";
import { Transcript } from "../timeline/transcript.ts";

/** The author of a post, and the events it may contain. */
export interface Poster {
  readonly author: string;
  /** Whether it may write messages with the role "system". */
  readonly asSystem: boolean;
  /** Whether it may send a message again: an existing message of its own is skipped, with its parts. */
  readonly repeats?: true;
  /** The role of a message that names none; "user" by default. */
  readonly role?: "assistant";
}

export interface PostDeps {
  readonly database: Database;
  readonly log: Log;
  readonly newId: () => string;
  readonly clock: Clock;
  /** How long a post waits for the start of a run to be in the log. */
  readonly waitMs: number;
}

type Tx = Pick<Database, "query">;

/** The end of the active branch, the active run, and the messages that follow the end in other branches. */
interface Branch {
  readonly leaf: string | null;
  readonly run: string | null;
  /** Whether the run has been claimed, and its start or resumption is not known to be in the log yet. */
  readonly begins: boolean;
  readonly others: readonly string[] | null;
}

const RETRY_MS = 25;
const MAX_EVENTS = 100;
const MAX_BYTES = 1 << 20;
/** Events that are part of a message. */
const OF_MESSAGES = [
  "text_delta",
  "reasoning_delta",
  "tool_call",
  "tool_result",
  "file_added",
  "source_added",
] as const satisfies (keyof EventJson)[];

/**
 * Appends events without a run, and stores their messages at the end of the active branch. Returns the cursor after them.
 * Messages are stored in the order of the log: the conversation's row is locked during this, and what the active run began
 * before them gets its place first.
 */
export async function postEvents(
  deps: PostDeps,
  conversation: ConversationRef,
  poster: Poster,
  sent: readonly EventJson[],
): Promise<string> {
  const { database, log, clock, waitMs } = deps;
  const { org, convId, generation, logName } = conversation;
  const checked = checkEvents(deps, poster, sent);
  const post = async (tx: Tx): Promise<string | undefined> => {
    const [row] = await tx.query<Branch>({
      name: "conversation_post_lock",
      text: `SELECT leaf_id AS leaf, run_id AS run, run_id IS NOT NULL AND (SELECT epoch FROM runtime.conversation_runs r
            WHERE r.org_id = $1 AND r.run_id = c.run_id) IS NULL AS begins,
          CASE WHEN leaf_id IS NOT NULL AND run_id IS NULL THEN (
            SELECT array_agg(s.message_id ORDER BY s.inserted_at, s.message_id) FROM runtime.messages s
            WHERE s.org_id = $1 AND s.conv_id = $2 AND s.parent_id = leaf_id) END AS others
        FROM runtime.conversations c
        WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL FOR NO KEY UPDATE`,
      values: [org, convId, generation],
    });
    if (!row) throw deletedMeanwhile();
    if (row.begins) return undefined;
    const events = poster.repeats ? await withoutPosted(tx, conversation, poster, checked) : checked;
    const { epoch, head: before } = await log.open(logName, generation).catch(unlessGone);
    if (events.length === 0) return formatCursor({ epoch, ...before });
    const { named, changed } = await fold(tx, conversation, row, events, checked);
    const entries = events.map((event) => entryText("", event));
    const { head } = await log.append(logName, entries, { epoch }).catch(unlessGone);
    if (changed.length > 0) {
      const added = changed.filter(({ message_id = "" }) => !named.has(message_id));
      let parent = row.leaf;
      if (row.run !== null && added.length > 0) {
        const run = { ...conversation, runId: row.run, leaf: row.leaf };
        parent = await placeBegunMessages(tx, log, run, { epoch, ...head });
      }
      for (const message of added) {
        if (parent !== null) message.parent_id = parent;
        parent = message.message_id!;
      }
      await tx.query({
        name: "messages_post",
        text: `WITH saved AS (
            INSERT INTO runtime.messages AS m
              (org_id, conv_id, message_id, parent_id, role, author, parts, status, log_epoch, log_seq, log_time, words,
                created_at)
            SELECT $1, $2, v ->> 'message_id', v ->> 'parent_id', v ->> 'role', v ->> 'author', v -> 'parts', 'done', $4, $5, $6,
              ${wordsOf("$1", "c.owner", "v -> 'parts'")}, coalesce((v ->> 'created_at')::timestamptz, now())
            FROM jsonb_array_elements($3::jsonb) v, runtime.conversations c WHERE c.org_id = $1 AND c.conv_id = $2
            ON CONFLICT (org_id, conv_id, message_id) DO UPDATE SET parts = excluded.parts, words = excluded.words, log_epoch = $4, log_seq = $5,
              log_time = $6, updated_at = now()
          )
          UPDATE runtime.conversations SET leaf_id = coalesce($7, leaf_id), updated_at = now()
          WHERE org_id = $1 AND conv_id = $2`,
        values: [org, convId, jsonb(changed), epoch, head.seq, head.time, added.at(-1)?.message_id ?? null],
      });
    }
    return formatCursor({ epoch, ...head });
  };
  const deadline = clock.now() + waitMs;
  for (;;) {
    const cursor = await database.interactive(post);
    if (cursor !== undefined) return cursor;
    if (clock.now() >= deadline) {
      const message = "An answer is just starting. Try again in a moment.";
      throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
    }
    await sleep(clock, RETRY_MS);
  }
}

/** The events without messages that this author has posted before. */
async function withoutPosted(
  tx: Tx,
  { org, convId }: ConversationRef,
  { author }: Poster,
  events: readonly EventJson[],
): Promise<EventJson[]> {
  const sent = events.flatMap(({ message }) => message?.message_id ?? []);
  const rows = await tx.query<{ id: string }>({
    name: "messages_posted",
    text: `SELECT message_id AS id FROM runtime.messages
      WHERE org_id = $1 AND conv_id = $2 AND message_id = ANY ($3::text[]) AND author = $4`,
    values: [org, convId, sent, author],
  });
  const posted = new Set<string | undefined>(rows.map(({ id }) => id));
  return events.filter((event) => !posted.has(messageIdOf(event)));
}

/**
 * Applies the events to the messages that they name. Events of new messages say their place in the branch, unless a run may
 * begin a message before them: then readers know it from the order of the log.
 */
async function fold(
  tx: Tx,
  { org, convId }: ConversationRef,
  { leaf, run, others }: Branch,
  events: readonly EventJson[],
  sent: readonly EventJson[],
): Promise<{ named: ReadonlySet<string>; changed: TranscriptMessageJson[] }> {
  const ids = [...new Set(events.flatMap((event) => messageIdOf(event) ?? []))];
  const rows = await tx.query<MessageRow>({
    name: "messages_named",
    text: `SELECT ${MESSAGE}, m.parts FROM runtime.messages m
      WHERE m.org_id = $1 AND m.conv_id = $2 AND m.message_id = ANY ($3::text[])`,
    values: [org, convId, ids],
  });
  const named = new Set(rows.map(({ message_id }) => message_id));
  if (run !== null && rows.some(({ run_id }) => run_id === run)) {
    const message =
      "An event belongs to a message of the active run, which only the engine may change. Wait for the end of the run.";
    throw new KhalaError("conversation_busy", message, { retry_after_ms: 1_000 });
  }
  const transcript = new Transcript(rows.map(messageOf));
  let parent = leaf;
  for (const event of events) {
    const id = messageIdOf(event);
    const field = `events[${sent.indexOf(event)}].${kindOf(event)}.message_id`;
    if (event.message) {
      if (transcript.has(id!)) throw invalid(field, `The message ${id} already exists. Send another id.`);
      if (parent !== null && run === null) event.message.parent_id = parent;
      if (others && parent === leaf) event.message.siblings = [...others, id!];
      parent = id!;
    } else if (id && !transcript.has(id)) {
      throw invalid(
        field,
        `There is no message ${id} in this conversation. Create it first, in this request or an earlier one.`,
      );
    }
    transcript.add({ runId: "", event });
  }
  return { named, changed: transcript.last() };
}

/** The name of the field that an event is in. */
function kindOf(event: EventJson): string {
  return Object.keys(event)[0] ?? "";
}

function checkEvents({ newId, clock }: PostDeps, poster: Poster, sent: readonly EventJson[]): EventJson[] {
  if (sent.length === 0 || sent.length > MAX_EVENTS)
    throw invalid("events", `Send 1 to ${MAX_EVENTS} events at once.`);
  const events = structuredClone([...sent]);
  let bytes = 0;
  for (const [i, event] of events.entries()) {
    const { message } = event;
    const field = `events[${i}].${kindOf(event)}`;
    if (message) {
      message.message_id ||= newId();
      message.role ||= poster.role ?? "user";
      if (!ROLES.includes(message.role))
        throw invalid(`${field}.role`, `role must be one of ${ROLES.join(", ")}.`);
      if (message.role === "system" && !poster.asSystem)
        throw invalid(
          `${field}.role`,
          'Only a service (scope chat:service) may write messages with the role "system".',
        );
      message.author = poster.author;
      message.created_at = new Date(clock.now()).toISOString();
      delete message.parent_id;
      delete message.siblings;
      delete message.replies;
    } else if (!event.custom && !event.status && !OF_MESSAGES.some((kind) => event[kind])) {
      throw invalid(`events[${i}]`, "Only the server may write this kind of event.");
    } else if (!event.custom && !event.status && !messageIdOf(event)) {
      throw invalid(
        `${field}.message_id`,
        "The event has no message_id. Send the id of the message that it belongs to.",
      );
    }
    const id = messageIdOf(event);
    if (id && !isId(id))
      throw invalid(`${field}.message_id`, "message_id must have 1 to 200 printable ASCII characters.");
    const tool = event.tool_call ?? event.tool_result;
    if (tool && !isId(tool.tool_call_id ?? ""))
      throw invalid(`${field}.tool_call_id`, "tool_call_id must have 1 to 200 printable ASCII characters.");
    if (event.tool_call?.waits_for !== undefined)
      throw invalid(
        `${field}.waits_for`,
        "Only a tool call of a run can wait for a decision. Leave waits_for out.",
      );
    const size = Buffer.byteLength(entryText("", event));
    bytes += size;
    if (size > MAX_ENTRY_BYTES || bytes > MAX_BYTES) {
      const text = `An event may have at most ${MAX_ENTRY_BYTES} bytes, and a request ${MAX_BYTES}. Send less per request.`;
      throw new KhalaError("payload_too_large", text, { field: "events" });
    }
  }
  return events;
}
