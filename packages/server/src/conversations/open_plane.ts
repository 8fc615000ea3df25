import { KhalaError, topicForConv } from "@khala/contracts";
import type { Database } from "../database/database.ts";
import { sleep } from "../kit/clock.ts";
import type { Context } from "../kit/context.ts";
import { openEngines } from "./engines/engine_cache.ts";
import { listOfOrg, listOwn, readLogPage } from "./listing.ts";
import { parseCursor } from "./log/cursor.ts";
import type { Log } from "./log/log.ts";
import { conversationMetrics } from "./metrics.ts";
import type { ConversationOptions } from "./options.ts";
import type { ConversationPlane } from "./plane.ts";
import { Announcer } from "./runs/announcer.ts";
import { chat, checkConvId } from "./runs/chat.ts";
import { openLeases } from "./runs/leases.ts";
import { openRuns } from "./runs/runs.ts";
import { openTakeover } from "./runs/takeover.ts";
import { openStore } from "./store.ts";
import { Attachment } from "./timeline/attachment.ts";
import { followReader } from "./timeline/follow.ts";
import { type HeldReader, openReaders } from "./timeline/readers.ts";

export type { ConversationOptions } from "./options.ts";

/** The plane with what only its own process needs. */
export interface OpenConversationPlane extends ConversationPlane {
  /** Another server says that a run is to be stopped: the wakeup `stop:<run_id>`. */
  onStopWakeup(runId: string): void;
  /** Completes now what servers that are gone have left behind; it happens by itself as well. */
  sweep(): Promise<void>;
  /** How this server calls itself. */
  readonly serverId: string;
}

/** What wakeups about a run that is to be stopped begin with. */
export const STOP_WAKEUP = "stop:";
const TELL_WITHIN_MS = 5_000;
const READ_WITHIN_MS = 10_000;

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
  const readers = openReaders(context, { ...options, log, metrics, serverId });
  const engines = openEngines(context, {
    factory: options.engine,
    idleMs: options.engineIdleMs,
    max: options.maxEngines,
  });
  const store = openStore(database, { holder: serverId, leaseMs, queueLimit: options.queueLimit });
  const leases = openLeases(database, { holder: serverId, leaseMs });
  const announcer = new Announcer(context, options.runs, leases.told);
  const maxRuns = options.maxEngines;
  const runs = openRuns(context, { ...options, log, leases, announcer, engines, readers, metrics, maxRuns });
  const takeover = openTakeover(context, { log, leases, runs, announcer, metrics, leaseMs });
  const stopping = new AbortController();
  /** Sockets by conversation. */
  const attachments = new Map<string, number>();
  let sockets = 0;

  // Most runs have a reader as well.
  metrics.active.addCallback((result) => result.observe(Math.max(readers.size, runs.size)));
  metrics.sockets.addCallback((result) => result.observe(sockets));
  metrics.engines.addCallback((result) => result.observe(engines.size));

  function refuseWhenStopping(): void {
    if (!stopping.signal.aborted) return;
    throw new KhalaError("shutting_down", "The server is shutting down. Try again in a moment.", {
      retry_after_ms: 1_000,
    });
  }

  function countSocket(convId: string, by: 1 | -1): void {
    sockets += by;
    const count = (attachments.get(convId) ?? 0) + by;
    if (count > 0) attachments.set(convId, count);
    else attachments.delete(convId);
  }

  /** A reader that has just looked: one that was kept may not know yet that the conversation was deleted elsewhere. */
  async function freshReader(convId: string): Promise<HeldReader> {
    for (;;) {
      const held = await readers.acquire(convId);
      try {
        await within(context, READ_WITHIN_MS, held.reader.refresh());
      } catch (error) {
        held.release();
        throw error;
      }
      if (!held.reader.over) return held;
      held.release();
    }
  }

  function stopEverywhere(runId: string, reason: string): void {
    if (!runs.stopRun(runId, reason)) options.wakeups.send(`${STOP_WAKEUP}${runId}`);
  }

  return {
    metrics,
    serverId,

    async chat(caller, command) {
      refuseWhenStopping();
      const waitMs = leaseMs;
      return chat(context, { log, store, runs, takeover, stopEverywhere, waitMs }, caller, command);
    },

    async stopRun(caller, convId) {
      checkConvId(convId);
      await store.check(caller, convId);
      const stopped = await store.requestStop(convId, "stopped");
      if (!stopped) return { stopped: false };
      if (stopped.alive) stopEverywhere(stopped.runId, "stopped");
      else await takeover.recover(convId);
      return { run_id: stopped.runId, stopped: true };
    },

    async state(caller, convId) {
      checkConvId(convId);
      await store.check(caller, convId);
      const { reader, release } = await freshReader(convId);
      try {
        const run = await store.running(convId);
        const transcript = await reader.transcript();
        const { cursor } = reader;
        // Its record follows its last event: whoever has read that is told of no run that still ends.
        const underWay = run && !transcript.hasEnded(run.run_id ?? "");
        return { conv_id: convId, cursor, ...(underWay && { run }), messages: transcript.last() };
      } finally {
        release();
      }
    },

    async run(caller, convId) {
      checkConvId(convId);
      await store.check(caller, convId);
      return store.newest(convId);
    },

    list: (caller, query) => listOwn(database, caller, query),
    listOfOrg: (org, query) => listOfOrg(database, org, query),

    async log(caller, convId, after, limit) {
      checkConvId(convId);
      const cursor = after === undefined ? undefined : parseCursor(after, "after");
      await store.check(caller, convId);
      return readLogPage(log, convId, cursor, limit);
    },

    attachedTo: (convId) => attachments.get(convId) ?? 0,

    async remove(caller, convId) {
      checkConvId(convId);
      await store.check(caller, convId);
      const removal = await store.beginRemoval(convId);
      if (!removal) return;
      const { run, fence } = removal;
      if (run) {
        runs.lose(run.runId);
        options.wakeups.send(`${STOP_WAKEUP}${run.runId}`);
        announcer.announce({ ...run, trace: null }, "run.stopped", {});
      }
      await log.delete(topicForConv(convId));
      await store.endRemoval(convId, fence);
      engines.drop(convId);
      readers.missed(convId);
      metrics.deletions.add(1, { cause: "request" });
    },

    async attach(caller, convId, member, start) {
      refuseWhenStopping();
      checkConvId(convId);
      await store.ensure(caller, convId);
      const { reader, release } = await freshReader(convId);
      const attachment = new Attachment(convId, reader, member, context, metrics);
      let attached = true;
      countSocket(convId, 1);
      const detach = () => {
        if (!attached) return;
        attached = false;
        countSocket(convId, -1);
        release();
      };
      try {
        await attachment.begin(start, await store.running(convId));
      } catch (error) {
        attachment.close();
        detach();
        throw error;
      }
      return {
        room: () => attachment.room(),
        heartbeat: () => attachment.heartbeat(),
        close() {
          attachment.close();
          detach();
        },
      };
    },

    async *follow(caller, convId, after, signal) {
      refuseWhenStopping();
      checkConvId(convId);
      const cursor = parseCursor(after, "after");
      await store.check(caller, convId);
      const { reader, release } = await readers.acquire(convId);
      try {
        yield* followReader(context, reader, cursor, AbortSignal.any([signal, stopping.signal]));
        if (!signal.aborted) refuseWhenStopping();
      } finally {
        release();
      }
    },

    onStopWakeup: (runId) => runs.recheck(runId),

    async sweep() {
      await takeover.sweep();
    },

    async stop() {
      if (stopping.signal.aborted) return;
      stopping.abort();
      await takeover.stop();
      await runs.stop();
      await leases
        .letGoOfAll()
        .catch((error) =>
          context.log.warn({ err: error.message }, "leases were not given back; they run out"),
        );
      await engines.stop();
      const enough = new AbortController();
      await Promise.race([announcer.drain(), sleep(context.clock, TELL_WITHIN_MS, enough.signal)]);
      enough.abort();
      await readers.stop();
    },
  };
}

/** Waits for a log that may not answer, but not for ever. */
async function within(context: Context, ms: number, work: Promise<void>): Promise<void> {
  const done = new AbortController();
  const late = sleep(context.clock, ms, done.signal).then(() => {
    if (done.signal.aborted) return;
    const message = "The conversation cannot be read right now. Try again in a moment.";
    throw new KhalaError("unavailable", message, { retry_after_ms: 1_000 });
  });
  await Promise.race([work, late]).finally(() => done.abort());
}
