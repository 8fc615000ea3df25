import { KhalaError } from "@khala/contracts";
import { notFound, reachesOrg } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Conversation } from "./conversation.ts";
import type { Files } from "./files/files.ts";
import { listFailedRuns, listOfOrg, listOwn, readLogPage } from "./listing.ts";
import { parseCursor } from "./log/cursor.ts";
import type { Log } from "./log/log.ts";
import type { MessageStore } from "./messages/message_store.ts";
import type { Participants } from "./people/participants.ts";
import type { ConversationPlane } from "./plane.ts";
import type { Queue } from "./queue/queue.ts";
import { checkConvId } from "./runs/chat.ts";
import type { Store } from "./store.ts";
import type { Followers } from "./timeline/followers.ts";
import { activeRun, PAGE } from "./timeline/snapshot.ts";
import { listApprovals } from "./waiting/awaited_calls.ts";

/** The parts of a conversation that are read. */
export interface ReadsOptions {
  readonly database: Database;
  readonly log: Log;
  readonly store: Store;
  readonly messages: MessageStore;
  readonly queue: Queue;
  readonly participants: Participants;
  readonly files: Files;
  readonly followers: Followers;
  /** Announces to the sockets of a conversation which branch is active, if they do not know yet. */
  readonly announced: (conversation: Conversation) => Promise<Conversation>;
}

/** What can be read of conversations. */
export type Reads = Pick<
  ConversationPlane,
  | "state"
  | "messages"
  | "run"
  | "queue"
  | "participants"
  | "approvals"
  | "list"
  | "listOfOrg"
  | "failedRuns"
  | "log"
  | "file"
>;

const LISTED_APPROVALS = 1_000;
const ACTIVE: ReadonlySet<string | undefined> = new Set(["queued", "running", "waiting"]);

/** Opens the reads of conversations. */
export function openReads(options: ReadsOptions): Reads {
  const { database, log, store, messages, queue, participants, files, followers, announced } = options;

  return {
    async state(caller, convId) {
      checkConvId(convId);
      const conversation = await announced(await store.check(caller, "conversation.read", convId));
      const snapshot = await followers.snapshot(conversation, PAGE);
      const { messages: newest, before, cursor } = snapshot;
      const { queued = [] } = await queue.list(conversation);
      const people = await participants.list(conversation);
      const run = await store.run(conversation);
      const isActive = ACTIVE.has(run?.status);
      const end = isActive ? snapshot.endOf(run?.run_id ?? "") : undefined;
      const active = run && isActive ? activeRun(run, snapshot) : null;
      return {
        conv_id: convId,
        cursor,
        ...(active ? { run: active } : run && { last_run: { ...run, ...end } }),
        messages: [...newest],
        // It may have begun in between.
        queued: queued.filter(({ run_id }) => run_id !== run?.run_id),
        ...(before !== undefined && { before }),
        ...people,
      };
    },

    async messages(caller, convId, { before, leaf, limit }) {
      checkConvId(convId);
      const conversation = await store.check(caller, "conversation.read", convId);
      const limits = { ...PAGE, messages: limit };
      if (before !== undefined) return messages.before(conversation, before, limits);
      if (leaf === undefined) return followers.snapshot(conversation, limits);
      const page = await messages.upTo(conversation, leaf, limits);
      if (page.messages.length > 0) return page;
      throw new KhalaError("not_found", notFound("message", leaf).message, { field: "leaf" });
    },

    async run(caller, convId, runId) {
      checkConvId(convId);
      return store.run(await store.check(caller, "conversation.read", convId), runId);
    },

    async queue(caller, convId) {
      checkConvId(convId);
      return queue.list(await store.check(caller, "conversation.read", convId));
    },

    async participants(caller, convId) {
      checkConvId(convId);
      return participants.list(await store.check(caller, "conversation.read", convId));
    },

    approvals: (caller) => {
      const ofOrg = reachesOrg(caller, "conversation.read");
      return listApprovals(database, caller.org, ofOrg ? undefined : caller.subject, LISTED_APPROVALS);
    },

    list: (caller, query) => listOwn(database, caller, query),
    listOfOrg: (org, query) => listOfOrg(database, org, query),
    failedRuns: (org, query) => listFailedRuns(database, org, query),

    async log(caller, convId, after, limit) {
      checkConvId(convId);
      const cursor = after === undefined ? undefined : parseCursor(after, "after");
      const conversation = await store.check(caller, "conversation.read", convId);
      return readLogPage(log, conversation, cursor, limit);
    },

    async file(caller, fileId) {
      const found = await files.find({ org: caller.org, fileId });
      if (!found) throw notFound("file", fileId);
      await store.check(caller, "conversation.read", found.convId).catch((error) => {
        throw error instanceof KhalaError && error.code === "not_found" ? notFound("file", fileId) : error;
      });
      return { ...found, read: (range) => files.read(found, range) };
    },
  };
}
