import { KhalaError } from "@khala/contracts";
import { may, notFound, requireScope } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { openRateQuota } from "../kit/quota.ts";
import type { BoardObserver, BoardOptions } from "./board_options.ts";
import { ROUTER } from "./model/names.ts";
import type { Task } from "./model/task.ts";
import { taskFor } from "./model/visibility.ts";
import { waitingCounts } from "./observe/correlation_state.ts";
import { openDeadLetters } from "./observe/dead_letters.ts";
import { boardMetrics, cachedLag, showLag, showSlots } from "./observe/metrics.ts";
import { boardObserver, everyObserver } from "./observe/observer.ts";
import { type Progress, startProgress } from "./observe/progress.ts";
import { openReads } from "./observe/reads.ts";
import { openReplays, replayCounter } from "./observe/replays.ts";
import { openSetAside } from "./observe/set_aside.ts";
import { openSetAsideItems } from "./observe/set_aside_items.ts";
import { boardSpans } from "./observe/spans.ts";
import { openTotals } from "./observe/totals.ts";
import type { BlackboardOptions } from "./options.ts";
import type { BlackboardPlane } from "./plane.ts";
import { startCron } from "./publish/cron.ts";
import { createRouter } from "./publish/matching.ts";
import { startOutbox } from "./publish/outbox.ts";
import { openPublishing } from "./publish/publishing.ts";
import { openSchedule } from "./publish/schedule.ts";
import { openThrottle } from "./publish/throttle.ts";
import { countUnclaimed } from "./remote/count_unclaimed.ts";
import { openRemote } from "./remote/remote.ts";
import { openRights } from "./rights.ts";
import { openApprovals } from "./waiting/approvals.ts";
import { openControlCommands } from "./waiting/control_commands.ts";
import { CONTROLS_WAKEUP, openControls } from "./waiting/controls.ts";
import { openGather } from "./waiting/gather.ts";
import { openParked } from "./waiting/parked.ts";
import { startRetention } from "./waiting/retention.ts";
import type { AgentParts } from "./work/execution.ts";
import { openRunning } from "./work/running.ts";
import { openSlots } from "./work/slots.ts";
import { openWorkers } from "./work/workers.ts";

export type { BlackboardOptions } from "./options.ts";

/** The plane, with operations for its own process only. */
export interface OpenBlackboardPlane extends BlackboardPlane {
  /** Handles a wake-up whose name starts with `board:`. */
  onWakeup(name: string): void;
  /** Checks for changes, because wake-ups may have been lost. */
  recheck(): void;
  /** The bytes of artifacts that are not in the database, by org. */
  storedBytes(): ReadonlyMap<string, number>;
}

const LISTED_APPROVALS = 1_000;

/** Opens the blackboard: the backend, the state kept in Postgres around it, and the agents. */
export async function openBlackboardPlane(
  database: Database,
  context: Context,
  options: BlackboardOptions,
): Promise<OpenBlackboardPlane> {
  const { agents, schemas, works, wakeups, pollMs, keepMs } = options;
  const names = new Set(agents.map(({ name }) => name));
  const types = [...agents.flatMap(({ consumes }) => consumes), ...Object.keys(schemas)];
  const metrics = boardMetrics(context.telemetry, [...names], types);
  const spans = boardSpans(context, options.carrier);
  const route = createRouter(agents, context);
  /** Observers of the board. Some of them need the board first, so they are added later. */
  const observers: BoardObserver[] = [boardObserver(metrics, spans)];
  /** Listeners for correlations that changed off the board, such as by a gathered task that expired. */
  const correlationListeners: Progress["correlationChanged"][] = [];
  const changed = (org: string, correlationId: string | undefined) => {
    if (correlationId) for (const listener of correlationListeners) listener(org, correlationId);
  };

  const running = openRunning(database, context);
  const setAsideItems = openSetAsideItems(database, context);
  const setAside = openSetAside(context, setAsideItems);
  const controls = await openControls(database, context, { wakeups, pollMs, keepMs });
  const boardOptions: BoardOptions = {
    agents: agents.map(({ name: agent, order, strict }) => ({ agent, order, strict })),
    route(artifact) {
      const routing = route(artifact);
      for (const { agent } of routing.dead) metrics.deadLetters.add(1, { agent });
      return routing;
    },
    replayed: replayCounter(database, context),
    running: (own) => running.share(own),
    observer: everyObserver(observers),
  };
  const board = await options.openBoard(boardOptions).catch(async (error) => {
    // A backend that is not reachable must not leave polls behind.
    await Promise.all([controls.stop(), running.stop(), setAsideItems.stop()]);
    throw error;
  });

  const sweeping = { pollMs, setAside };
  const outbox = startOutbox(database, board, context, sweeping);
  const gather = openGather(database, board, context, { ...sweeping, agents, onDropped: changed });
  const parked = openParked(database, board, context, controls, sweeping);
  const approvals = openApprovals(database, context, outbox);
  const schedule = openSchedule(database, context, outbox, changed);
  const remoteAgents = agents.filter(({ options: { run } }) => !run);
  const remote = openRemote(database, context, {
    agents: remoteAgents,
    wakeups,
    leaseMs: options.leaseMs,
    pollMs,
    postToConversation: options.postToConversation,
  });
  const counts = countUnclaimed(board, remote.offered);
  const lag = cachedLag(board, context);
  const throttle = openThrottle({ lag, waiting: (org) => board.waiting(org) }, context, {
    soft: options.lag.slow,
    hard: options.lag.refuse,
    agents,
    counts: (reader) => !controls.paused(reader),
  });
  const publishing = openPublishing(context, {
    board,
    schedule,
    throttle,
    quota: openRateQuota(context, {
      name: "board_artifacts",
      of: "published artifacts per second on this server",
      perSecond: options.publishRate,
    }),
    spans,
    schemas,
  });
  const replays = openReplays(database, context, outbox, publishing.checkPayload);
  const totals = openTotals(database, context, [...names]);
  const slots = openSlots(options.concurrency);
  showSlots(metrics, slots);
  showLag(metrics, context, lag);
  const shared: AgentParts = {
    slots,
    metrics,
    spans,
    schemas,
    maxDepth: options.maxDepth,
    postToConversation: options.postToConversation,
    known: board.known,
    async later(outputs) {
      await schedule.add(outputs.map(({ artifact, notBefore = 0 }) => ({ artifact, notBefore })));
    },
  };
  const workers = openWorkers(board, context, agents, works, {
    shared,
    controls,
    gather,
    approvals,
    parked,
    remote,
  });
  const standing = { ...counts, correlations: board.correlations };
  const progress = startProgress(standing, context, {
    agents,
    totals,
    setAside,
    report: options.report,
    stateOf: workers.stateOf,
    cancelled: controls.cancelled,
    paused: isPaused,
    waitingCounts: (names) => waitingCounts(database, names),
  });
  correlationListeners.push(progress.correlationChanged);
  observers.push(progress.observer, {
    published() {},
    routed() {},
    repeated() {},
    settled: (task, settlement) => remote.settled(task, settlement),
  });
  const unlisten = [
    controls.onPause((agent) => progress.agentChanged(agent)),
    controls.onCancel((org, correlationId) => progress.correlationChanged(org, correlationId)),
    controls.onPauseCorrelation((org, correlationId) => progress.correlationChanged(org, correlationId)),
  ];
  // Last: what is settled from now on is observed.
  workers.start();
  const cron = startCron(database, context, {
    schedules: options.schedules,
    make: publishing.fromSchedule,
    outbox,
    setAside,
  });
  const letters = openDeadLetters(board, replays, (caller, agent) => {
    // Records that the router could not decode have no agent and no org. They are listed under the router's name.
    if (agent === ROUTER) requireScope(caller, "server.inspect");
    else known(agent);
  });
  const purge = startRetention(database, context, { keepMs });

  /** A correlation that is being resumed counts as running. */
  function isPaused(org: string, correlationId: string): boolean {
    return controls.correlationPause(org, correlationId)?.resuming === false;
  }

  function known(agent: string): void {
    if (!names.has(agent))
      throw new KhalaError(
        "not_found",
        `There is no agent "${agent}". GET /blackboard/v1/agents lists them.`,
      );
  }

  const reads = openReads({
    database,
    clock: context.clock,
    board,
    counts,
    agents,
    controls,
    isPaused,
    totals,
    workers,
  });
  const rights = openRights({
    board,
    schedule,
    agents,
    isKnown: async (org, correlationId) => (await reads.stateOf(org, correlationId)) !== undefined,
  });
  const commands = openControlCommands({
    agents: names,
    known,
    controls,
    rights,
    schedule,
    letters,
    progress,
  });

  return {
    ...reads.plane,
    ...commands,
    publish: (caller, drafts) => publishing.publish(caller, drafts),

    problems: setAside.problems,
    setAside: setAsideItems.list,
    discardSetAside: setAsideItems.discard,
    async retrySetAside(caller, id) {
      await setAsideItems.retry(caller, id);
      outbox.wake();
      board.recheck();
    },

    deadLetters: letters.list,
    deadLetter: letters.get,
    replay: letters.replay,
    replayAll: letters.replayAll,

    approvals: (caller) =>
      approvals.list(caller.org, { limit: LISTED_APPROVALS, show: (task) => taskFor(caller, task) }),
    async decide(caller, id, decision) {
      const { org, subject } = caller;
      if (!may(caller, "approval.decide", { org })) throw notFound("approval", id);
      const check = (task: Task) => rights.requireDecider(caller, task);
      changed(org, await approvals.decide(org, id, decision, subject, check));
    },

    async claim(caller, agent, ask, signal) {
      known(agent);
      return remote.claim(caller, agent, ask, signal);
    },
    heartbeat: remote.heartbeat,
    settle: remote.settle,
    post: remote.post,

    onWakeup(name) {
      if (name === CONTROLS_WAKEUP) controls.onWakeup();
      else if (!remote.onWakeup(name)) board.onWakeup(name);
    },

    recheck() {
      controls.onWakeup();
      board.recheck();
    },

    storedBytes: () => board.storedBytes?.() ?? new Map(),

    async stop() {
      for (const each of unlisten) each();
      await cron.stop();
      await remote.drain();
      await workers.stop();
      await Promise.all([remote.stop(), gather.stop(), parked.stop(), outbox.stop(), purge.stop()]);
      await progress.stop();
      await controls.stop();
      await board.stop();
      await Promise.all([running.stop(), setAsideItems.stop()]);
    },
  };
}
