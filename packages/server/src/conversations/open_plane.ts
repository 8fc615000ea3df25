import { KhalaError } from "@khala/contracts";
import type { StopResponseJson } from "@khala/contracts/conversation/v1";
import { notFound, reachesOrg } from "../access/access.ts";
import type { Caller } from "../access/viewer.ts";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { openConcurrencyQuota, openRateQuota } from "../kit/quota.ts";
import { withTimeout } from "../kit/timeout.ts";
import { openAnnouncer } from "./announce.ts";
import type { Conversation, ConversationRef } from "./conversation.ts";
import { openEngineCache } from "./engines/engine_cache.ts";
import { eraseConversations } from "./erasure.ts";
import { fileAnswer } from "./files/file_urls.ts";
import { openFiles } from "./files/files.ts";
import { openPostgresFileStore } from "./files/postgres_file_store.ts";
import { listFailedRuns, listOfOrg, listOwn, readLogPage } from "./listing.ts";
import { parseCursor } from "./log/cursor.ts";
import type { Log } from "./log/log.ts";
import { openBranches } from "./messages/branches.ts";
import { openMessageStore, type PageLimits } from "./messages/message_store.ts";
import { conversationMetrics } from "./metrics.ts";
import type { ConversationOptions } from "./options.ts";
import { openMemberships } from "./people/memberships.ts";
import { checkParticipant, openParticipants } from "./people/participants.ts";
import { postEvents } from "./people/post_events.ts";
import { openPresence } from "./people/presence.ts";
import type { ConversationPlane } from "./plane.ts";
import { contentHash } from "./queue/content_hash.ts";
import { openQueue, readQueuedContent } from "./queue/queue.ts";
import { chat, checkConvId, checkId, checkMessage } from "./runs/chat.ts";
import { openLeases } from "./runs/leases.ts";
import { RunReporter } from "./runs/run_reporter.ts";
import { openRuns } from "./runs/runs.ts";
import { openTakeover } from "./runs/takeover.ts";
import { openStore } from "./store.ts";
import { openFollowers, refuseWhen } from "./timeline/followers.ts";
import { openReaders } from "./timeline/readers.ts";
import { PAGE } from "./timeline/snapshot.ts";
import { prepareTurn } from "./turns/prepare_turn.ts";
import { listApprovals } from "./waiting/awaited_calls.ts";
import { type Decided, decideCall } from "./waiting/decide.ts";

export type { ConversationOptions } from "./options.ts";

/** The plane with the functions for its own process. */
export interface OpenConversationPlane extends ConversationPlane {
  /** Another server asked to stop a run: the wakeup `stop:<run_id>`. */
  onStopWakeup(runId: string): void;
  /** Another server left runs behind: the wakeup `takeover`. */
  onTakeoverWakeup(): void;
  /** Another server changed who takes part in a conversation: the wakeup `people`. */
  onPeopleWakeup(): void;
  /** Another server announces who is connected there: the wakeup `presence:<announcement>`. */
  onPresenceWakeup(text: string): void;
  /** Takes over the runs of lost servers now. It also happens periodically. */
  sweep(): Promise<void>;
  /** The id under which this server holds leases. */
  readonly serverId: string;
}

/** The prefix of wakeups that ask to stop a run. */
export const STOP_WAKEUP = "stop:";
/** The wakeup that a server left runs for others to continue or to start. */
export const TAKEOVER_WAKEUP = "takeover";
/** The wakeup for a change of some conversation's participants. */
export const PEOPLE_WAKEUP = "people";
const LISTED_APPROVALS = 1_000;
const REPORT_TIMEOUT_MS = 5_000;
const ACTIVE: ReadonlySet<string | undefined> = new Set(["queued", "running", "waiting"]);
const DEFAULT_FILE_BYTES = 25 << 20;

/** Opens the conversation plane on a log. */
export async function openConversationPlane(
  database: Database,
  log: Log,
  context: Context,
  options: ConversationOptions,
): Promise<OpenConversationPlane> {
  const serverId = context.newId();
  const { leaseMs } = options;
  const metrics = conversationMetrics(context.telemetry.meter);
  const engines = openEngineCache(context, {
    factory: options.engine,
    idleMs: options.engineIdleMs,
    max: options.maxEngines,
  });
  const files =
    options.files ??
    openFiles(database, context, {
      store: openPostgresFileStore(database),
      maxBytes: DEFAULT_FILE_BYTES,
      stored: options.stored,
    });
  const { queueLimit } = options;
  const store = openStore(database, { holder: serverId, leaseMs, queueLimit, newId: context.newId });
  const leases = openLeases(database, { holder: serverId, leaseMs });
  const { isDeleted } = leases;
  const readers = openReaders(context, { ...options, log, metrics, serverId, isDeleted });
  const messageStore = openMessageStore(database);
  const reporter = new RunReporter(context, options.runs, leases.markReported);
  const maxRuns = options.maxEngines;
  const liveRuns = openConcurrencyQuota(context, {
    name: "chat_runs",
    of: "live runs on this server",
    limit: options.maxRunsPerOrg,
  });
  const messages = openRateQuota(context, {
    name: "chat_messages",
    of: "messages per second on this server",
    perSecond: options.maxMessagesPerOrg,
  });
  const wakeOthers = () => options.wakeups.send(TAKEOVER_WAKEUP);
  const ofRuns = {
    wakeOthers,
    log,
    leases,
    reporter,
    engines,
    files,
    messages: messageStore,
    metrics,
    maxRuns,
    quota: liveRuns,
  };
  const announcer = openAnnouncer(context, log);
  const queue = openQueue(database, announcer);
  const branches = openBranches({ database, log, messages: messageStore });
  const memberships = openMemberships(context, database);
  const participants = openParticipants(database, announcer, () => {
    memberships.recheck();
    options.wakeups.send(PEOPLE_WAKEUP);
  });
  const onDequeued = (run: ConversationRef) => void queue.announce(run);
  const recover = (run: ConversationRef) => void goOn(run);
  const runs = openRuns(context, { ...options, ...ofRuns, onDequeued, recover });
  const takeover = openTakeover(context, {
    log,
    messages: messageStore,
    leases,
    runs,
    reporter,
    metrics,
    leaseMs,
  });
  const presence = openPresence(context, { serverId, send: (name) => options.wakeups.send(name) });
  const stopping = new AbortController();
  let draining = false;
  const followers = openFollowers(context, {
    ...{ store, messages: messageStore, readers, memberships, presence, metrics },
    told,
    stopping: stopping.signal,
  });
  // Most runs also have a reader.
  metrics.active.addCallback((result) => result.observe(Math.max(readers.size, runs.size)));
  metrics.engines.addCallback((result) => result.observe(engines.size));

  /** A conversation whose sockets know which branch is active. */
  async function told(conversation: Conversation): Promise<Conversation> {
    if (conversation.untold) await branches.tell(conversation);
    return conversation;
  }

  /** The branch that ends with a message, as it is stored. */
  async function branchPage(conversation: ConversationRef, leaf: string, limits: PageLimits) {
    const page = await messageStore.upTo(conversation, leaf, limits);
    if (page.messages.length > 0) return page;
    throw new KhalaError("not_found", notFound("message", leaf).message, { field: "leaf" });
  }

  function stopEverywhere(runId: string, reason: string): void {
    if (!runs.stopRun(runId, reason)) options.wakeups.send(`${STOP_WAKEUP}${runId}`);
  }

  /** Continues or ends a run that has waited. When this server cannot, another one does. */
  async function goOn(conversation: ConversationRef): Promise<void> {
    try {
      await takeover.recover(conversation);
    } catch (error) {
      const details = { err: (error as Error).message, conversation: conversation.convId };
      context.log.warn(details, "a waiting run could not go on here");
      wakeOthers();
    }
  }

  async function remove(caller: Caller, convId: string): Promise<void> {
    checkConvId(convId);
    const conversation = await store.check(caller, "conversation.delete", convId);
    const removal = await store.beginRemoval(conversation);
    if (!removal) return;
    const { run, fence } = removal;
    if (run) {
      runs.abandon(run.runId);
      options.wakeups.send(`${STOP_WAKEUP}${run.runId}`);
      reporter.report({ ...run, trace: null }, "run.stopped", {});
    }
    await log.delete(conversation.logName, conversation.generation);
    await files.erase(conversation);
    await store.endRemoval(conversation, fence);
    engines.drop(conversation);
    readers.missed(conversation);
    metrics.deletions.add(1, { cause: "request" });
  }

  /** Cancels the run if it is queued. */
  async function cancelled(conversation: ConversationRef, runId: string): Promise<boolean> {
    try {
      await queue.cancel(conversation, runId);
      return true;
    } catch (error) {
      if (error instanceof KhalaError && (error.code === "run_begun" || error.code === "not_found"))
        return false;
      throw error;
    }
  }

  async function stopRun(caller: Caller, convId: string, runId?: string): Promise<StopResponseJson> {
    checkConvId(convId);
    const conversation = await store.check(caller, "conversation.write", convId);
    if (runId !== undefined && (await cancelled(conversation, runId)))
      return { run_id: runId, stopped: true };
    const stopped = await store.requestStop(conversation, "stopped", runId);
    if (!stopped) return { stopped: false };
    if (stopped.active && stopped.alive) stopEverywhere(stopped.runId, "stopped");
    else if (stopped.active) {
      await leases.wake({ ...conversation, runId: stopped.runId });
      await takeover.recover(conversation);
    }
    return { run_id: stopped.runId, stopped: true };
  }

  return {
    metrics,
    serverId,

    async chat(caller, command) {
      refuseWhen(draining);
      const waitMs = leaseMs;
      const { stored } = options;
      const deps = {
        ...{ log, store, runs, takeover, queue, branches },
        ...{ quota: messages, stored, stopEverywhere, waitMs },
      };
      const { org } = caller;
      const { convId, messageId, resent } = command;
      // The files of a message that is answered again are stored already.
      const known =
        resent === "regenerate" &&
        messageId !== undefined &&
        (await messageStore.has({ org, convId }, messageId));
      const { parts: _, ...withoutParts } = command;
      const prepared = await prepareTurn(
        context,
        { store, files, params: options.engine.params },
        caller,
        known ? withoutParts : command,
      );
      return chat(context, deps, caller, prepared, contentHash(command));
    },

    stopRun,

    async queue(caller, convId) {
      checkConvId(convId);
      return queue.list(await store.check(caller, "conversation.read", convId));
    },

    async editQueued(caller, convId, runId, edited) {
      checkConvId(convId);
      const content = readQueuedContent(edited);
      checkMessage(content.message);
      const conversation = await store.check(caller, "conversation.write", convId);
      return queue.edit(caller, conversation, runId, content);
    },

    async cancelQueued(caller, convId, runId) {
      checkConvId(convId);
      return queue.cancel(await store.check(caller, "conversation.write", convId), runId);
    },

    async decideCalls(caller, convId, decisions) {
      refuseWhen(draining);
      checkConvId(convId);
      const conversation = await store.check(caller, "tool_call.decide", convId);
      const deps = { database, log, files, waitMs: leaseMs };
      let last: Decided | undefined;
      for (const decision of decisions) {
        last = await decideCall(context, deps, conversation, caller.subject, decision);
        if (last.resumes) await goOn(conversation);
      }
      if (!last) throw new KhalaError("invalid_request", "There is no decision in the request.");
      return last.answer;
    },

    approvals: (caller) => {
      const ofOrg = reachesOrg(caller, "conversation.read");
      return listApprovals(database, caller.org, ofOrg ? undefined : caller.subject, LISTED_APPROVALS);
    },

    async post(caller, convId, events) {
      checkConvId(convId);
      messages.take(caller.org);
      const conversation = await told(await store.check(caller, "conversation.write", convId));
      options.stored?.take(caller.org, "conversations", Buffer.byteLength(JSON.stringify(events)));
      const asSystem = reachesOrg(caller, "conversation.write");
      const deps = { database, log, newId: context.newId, clock: context.clock, waitMs: leaseMs };
      const poster = { author: caller.subject, asSystem };
      return { cursor: await postEvents(deps, conversation, poster, events) };
    },

    async chooseBranch(caller, convId, messageId) {
      checkConvId(convId);
      checkId("message_id", messageId);
      return branches.choose(await store.check(caller, "conversation.write", convId), messageId);
    },

    async participants(caller, convId) {
      checkConvId(convId);
      return participants.list(await store.check(caller, "conversation.read", convId));
    },

    async putParticipant(caller, convId, { subject, role }) {
      checkConvId(convId);
      const checked = checkParticipant(subject, role);
      return participants.put(await store.check(caller, "conversation.manage", convId), subject, checked);
    },

    async removeParticipant(caller, convId, subject) {
      checkConvId(convId);
      checkParticipant(subject);
      return participants.remove(await store.check(caller, "conversation.manage", convId), subject);
    },

    async state(caller, convId) {
      checkConvId(convId);
      const conversation = await told(await store.check(caller, "conversation.read", convId));
      const snapshot = await followers.snapshot(conversation, PAGE);
      const { messages: newest, before, cursor } = snapshot;
      const { queued = [] } = await queue.list(conversation);
      const people = await participants.list(conversation);
      const run = await store.run(conversation);
      // The run's row is updated after its last event.
      const { run_id: runId = "", status } = run ?? {};
      const calls = status === "running" ? snapshot.waitingFor(runId) : undefined;
      const waits = calls && { status: "waiting", waits_for: [...calls] };
      const end = ACTIVE.has(status) ? (snapshot.endOf(runId) ?? waits) : undefined;
      const isActive = ACTIVE.has(end?.status ?? status);
      return {
        conv_id: convId,
        cursor,
        ...(run && { [isActive ? "run" : "last_run"]: { ...run, ...end } }),
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
      if (before !== undefined) return messageStore.before(conversation, before, limits);
      if (leaf !== undefined) return branchPage(conversation, leaf, limits);
      return followers.snapshot(conversation, limits);
    },

    async run(caller, convId, runId) {
      checkConvId(convId);
      return store.run(await store.check(caller, "conversation.read", convId), runId);
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

    async putFile(caller, convId, file) {
      refuseWhen(stopping.signal.aborted);
      checkConvId(convId);
      const conversation = await store.ensure(caller, "conversation.write", convId);
      return fileAnswer(await files.put(conversation, { ...file, author: caller.subject }));
    },

    async file(caller, fileId) {
      const found = await files.find({ org: caller.org, fileId });
      if (!found) throw notFound("file", fileId);
      await store.check(caller, "conversation.read", found.convId).catch((error) => {
        throw error instanceof KhalaError && error.code === "not_found" ? notFound("file", fileId) : error;
      });
      return { ...found, read: (range) => files.read(found, range) };
    },

    attachedTo: followers.attachedTo,
    attach: followers.attach,
    follow: followers.follow,

    erase(erasure) {
      const removeParticipant = participants.remove;
      const erased = (conversation: ConversationRef) => {
        engines.drop(conversation);
        readers.missed(conversation);
      };
      return eraseConversations(
        { database, log, files, remove, stopRun, removeParticipant, erased },
        erasure,
      );
    },

    remove,

    onStopWakeup: (runId) => runs.recheck(runId),
    onTakeoverWakeup: () => takeover.wake(),
    onPeopleWakeup: () => memberships.recheck(),
    onPresenceWakeup: (text) => presence.onWakeup(text),

    async sweep() {
      await takeover.sweep();
    },

    get draining() {
      return draining;
    },

    async drain(timeoutMs) {
      draining = true;
      await takeover.stop();
      const ended = runs.drain().then(async () => {
        await followers.ended();
      });
      await withTimeout(context.clock, timeoutMs, ended, undefined);
      await runs.handOver();
    },

    async stop() {
      if (stopping.signal.aborted) return;
      draining = true;
      stopping.abort();
      await takeover.stop();
      await runs.stop();
      await Promise.all([memberships.stop(), presence.stop()]);
      await leases
        .releaseAll()
        .catch((error) =>
          context.log.warn({ err: error.message }, "leases could not be released and will expire"),
        );
      wakeOthers();
      await engines.stop();
      await withTimeout(context.clock, REPORT_TIMEOUT_MS, reporter.drain(), undefined);
      await readers.stop();
    },
  };
}
