import { reachesOrg } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { openConcurrencyQuota, openRateQuota } from "../kit/quota.ts";
import { withTimeout } from "../kit/timeout.ts";
import { openAnnouncer } from "./announce.ts";
import type { Conversation, ConversationRef } from "./conversation.ts";
import { openEngineCache } from "./engines/engine_cache.ts";
import { fileAnswer } from "./files/file_urls.ts";
import type { Log } from "./log/log.ts";
import { openBranches } from "./messages/branches.ts";
import { openMessageStore } from "./messages/message_store.ts";
import { conversationMetrics } from "./metrics.ts";
import { type ConversationOptions, STOP_WAKEUP } from "./options.ts";
import { openMemberships } from "./people/memberships.ts";
import { checkParticipant, openParticipants } from "./people/participants.ts";
import { postEvents } from "./people/post_events.ts";
import { openPresence } from "./people/presence.ts";
import type { ConversationPlane } from "./plane.ts";
import { openQueue } from "./queue/queue.ts";
import { openReads } from "./reads.ts";
import { openRemoval } from "./removal.ts";
import { checkConvId, checkId } from "./runs/chat.ts";
import { openLeases } from "./runs/leases.ts";
import { openRunCommands } from "./runs/run_commands.ts";
import { RunReporter } from "./runs/run_reporter.ts";
import { openRuns } from "./runs/runs.ts";
import { openTakeover } from "./runs/takeover.ts";
import { openStore } from "./store.ts";
import { openFollowers, refuseWhen } from "./timeline/followers.ts";
import { openReaders } from "./timeline/readers.ts";

export { type ConversationOptions, STOP_WAKEUP } from "./options.ts";

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

/** The wakeup that a server left runs for others to continue or to start. */
export const TAKEOVER_WAKEUP = "takeover";
/** The wakeup for a change of some conversation's participants. */
export const PEOPLE_WAKEUP = "people";
const REPORT_TIMEOUT_MS = 5_000;

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
  const { files, queueLimit } = options;
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
  const runs = openRuns(context, { ...options, ...ofRuns, onDequeued });
  const takeover = openTakeover(context, {
    log,
    messages: messageStore,
    leases,
    runs,
    reporter,
    metrics,
    leaseMs,
    wakeOthers,
  });
  const presence = openPresence(context, { serverId, send: (name) => options.wakeups.send(name) });
  const stopping = new AbortController();
  const draining = new AbortController();

  /** A conversation whose sockets know which branch is active. */
  async function announced(conversation: Conversation): Promise<Conversation> {
    if (conversation.unannounced) await branches.announce(conversation);
    return conversation;
  }

  function stopEverywhere(runId: string, reason: string): void {
    if (!runs.stopRun(runId, reason)) options.wakeups.send(`${STOP_WAKEUP}${runId}`);
  }

  const followers = openFollowers(context, {
    ...{ store, messages: messageStore, readers, memberships, presence, metrics },
    announced,
    stopping: stopping.signal,
  });
  // Most runs also have a reader.
  metrics.active.addCallback((result) => result.observe(Math.max(readers.size, runs.size)));
  metrics.engines.addCallback((result) => result.observe(engines.size));

  const commands = openRunCommands(context, {
    ...{ database, log, store, leases, runs, takeover, queue, branches, messages: messageStore, files },
    ...{ quota: messages, stored: options.stored, stopEverywhere, waitMs: leaseMs },
    params: options.engine.params,
    draining: draining.signal,
  });
  const removal = openRemoval({
    ...{ database, log, files, store, runs, reporter, engines, readers, participants, metrics },
    wakeups: options.wakeups,
    stopRun: commands.stopRun,
  });

  return {
    metrics,
    serverId,
    ...commands,
    ...removal,
    ...openReads({
      database,
      log,
      store,
      messages: messageStore,
      queue,
      participants,
      files,
      followers,
      announced,
    }),

    async post(caller, convId, events) {
      checkConvId(convId);
      messages.take(caller.org);
      const conversation = await announced(await store.check(caller, "conversation.write", convId));
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

    async putFile(caller, convId, file) {
      refuseWhen(stopping.signal.aborted);
      checkConvId(convId);
      const conversation = await store.ensure(caller, "conversation.write", convId);
      return fileAnswer(await files.put(conversation, { ...file, author: caller.subject }));
    },

    attachedTo: followers.attachedTo,
    attach: followers.attach,
    follow: followers.follow,

    onStopWakeup: (runId) => runs.recheck(runId),
    onTakeoverWakeup: () => takeover.wake(),
    onPeopleWakeup: () => memberships.recheck(),
    onPresenceWakeup: (text) => presence.onWakeup(text),

    async sweep() {
      await takeover.sweep();
    },

    get draining() {
      return draining.signal.aborted;
    },

    async drain(timeoutMs) {
      draining.abort();
      await takeover.stop();
      const ended = runs.drain().then(async () => {
        await followers.ended();
      });
      await withTimeout(context.clock, timeoutMs, ended, undefined);
      await runs.handOver();
    },

    async stop() {
      if (stopping.signal.aborted) return;
      draining.abort();
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
