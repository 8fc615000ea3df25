import { KhalaError } from "@khala/contracts";
import type { CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import { may, notFound, orgOf, requireScope } from "../access/access.ts";
import type { Database } from "../database/database.ts";
import type { Context } from "../kit/context.ts";
import { openRateQuota } from "../kit/quota.ts";
import type { BoardObserver, BoardOptions } from "./board_options.ts";
import { ROUTER } from "./model/names.ts";
import type { Task } from "./model/task.ts";
import { mayRead, taskFor } from "./model/visibility.ts";
import { correlationState, readCorrelations, waitingCounts } from "./observe/correlation_state.ts";
import { openDeadLetters } from "./observe/dead_letters.ts";
import { boardMetrics, cachedLag, showLag, showSlots } from "./observe/metrics.ts";
import { boardObserver, everyObserver } from "./observe/observer.ts";
import { agentCounted, type Progress, startProgress } from "./observe/progress.ts";
import { openReplays, replayCounter } from "./observe/replays.ts";
import { openSetAside } from "./observe/set_aside.ts";
import { openSetAsideItems } from "./observe/set_aside_items.ts";
import { boardSpans } from "./observe/spans.ts";
import { findStarter, publisherOf } from "./observe/starter.ts";
import { openTotals } from "./observe/totals.ts";
import type { BlackboardOptions } from "./options.ts";
import type { BlackboardPlane, Caller } from "./plane.ts";
import { startCron } from "./publish/cron.ts";
import { createRouter } from "./publish/matching.ts";
import { startOutbox } from "./publish/outbox.ts";
import { openPublishing } from "./publish/publishing.ts";
import { openSchedule } from "./publish/schedule.ts";
import { openThrottle } from "./publish/throttle.ts";
import { openRemote } from "./remote/remote.ts";
import { approvalRules, checkDecider } from "./waiting/approval_rules.ts";
import { openApprovals } from "./waiting/approvals.ts";
import { CONTROLS_WAKEUP, openControls } from "./waiting/controls.ts";
import { openGather } from "./waiting/gather.ts";
import { openParked } from "./waiting/parked.ts";
import { startRetention } from "./waiting/retention.ts";
import { openExecutor } from "./work/execution.ts";
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
/** While a list is not full, each query looks this many times further back, up to FURTHEST. */
const FURTHER = 8;
const FURTHEST = 10_000;

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
    // A process without agents would route every artifact to no agent.
    routes: agents.length > 0,
    replayed: replayCounter(database, context),
    running: (own) => running.share(own),
    refused: (fields, error) => setAside.refused("board router", fields, error),
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
  const executor = openExecutor(context, {
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
  });
  const workers = openWorkers(board, context, agents, works, {
    executor,
    controls,
    gather,
    approvals,
    parked,
    remote,
  });
  const progress = startProgress(board, context, {
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

  async function readState(org: string, correlationId: string): Promise<CorrelationCountedJson | undefined> {
    const names = [{ org, name: correlationId }];
    const [standing] = await readCorrelations(board, (some) => waitingCounts(database, some), names);
    const said = { cancelled: controls.cancelled(org, correlationId), paused: isPaused(org, correlationId) };
    return correlationState(standing!, said);
  }

  /** A correlation is controlled by who started it, and by operators of its org; for others it is not there. */
  async function requireControl(caller: Caller, correlationId: string): Promise<void> {
    const { org } = caller;
    const starter = await findStarter(board, schedule, org, correlationId);
    const exists = starter !== undefined || (await readState(org, correlationId)) !== undefined;
    const owner = starter?.subject;
    const resource = { org, ...(owner !== undefined && { owner }) };
    if (!exists || !may(caller, "correlation.control", resource))
      throw notFound("correlation", correlationId);
  }

  /** Throws unless the rules of the agent's approval let the caller decide. */
  async function requireDecider(caller: Caller, task: Task): Promise<void> {
    const agent = agents.find(({ name }) => name === task.agent);
    await checkDecider(caller, agent ? approvalRules(agent, task) : [], () => requestersOf(caller.org, task));
  }

  /** The people whose request the task is: they published its artifacts, or started the correlation of an agent's artifact. */
  async function requestersOf(org: string, { artifacts }: Task): Promise<Set<string>> {
    const found = await Promise.all(
      artifacts.map(async (artifact) => {
        const { correlation_id } = artifact;
        const publisher = publisherOf(artifact);
        if (publisher !== undefined || !correlation_id) return publisher;
        return (await findStarter(board, schedule, org, correlation_id))?.subject;
      }),
    );
    return new Set(found.filter((subject) => subject !== undefined));
  }

  function known(agent: string): void {
    if (!names.has(agent))
      throw new KhalaError(
        "not_found",
        `There is no agent "${agent}". GET /blackboard/v1/agents lists them.`,
      );
  }

  return {
    publish: (caller, drafts) => publishing.publish(caller, drafts),

    async get(caller, id, org = caller.org) {
      const artifact = await board.get(org, id);
      return artifact && mayRead(caller, artifact) ? artifact : undefined;
    },

    async recent(caller, { type, correlationId, limit }) {
      const query = {
        org: caller.org,
        ...(type !== undefined && { type }),
        ...(correlationId !== undefined && { correlationId }),
      };
      // Artifacts that the caller may not read are filtered out, so the list may need to look further back.
      for (let looked = limit; ; looked *= FURTHER) {
        const found = await board.recent({ ...query, limit: looked });
        const readable = found.filter((artifact) => mayRead(caller, artifact));
        if (readable.length >= limit || found.length < looked || looked * FURTHER > FURTHEST)
          return readable.slice(0, limit);
      }
    },

    async agents(caller) {
      const org = caller && orgOf(caller, "board.read");
      const [counts, totalsOf] = await Promise.all([
        org === undefined ? board.counts() : board.countsOf([...names].map((agent) => ({ agent, org }))),
        totals.look(org === undefined ? undefined : [org]),
      ]);
      const byAgent = new Map(counts.map((each) => [each.agent, each]));
      return agents.map((agent) => {
        const { name } = agent;
        const state = workers.stateOf(name, caller?.org);
        const total = totalsOf(name, org);
        const published = Object.fromEntries([...total.published].map(([type, n]) => [type, String(n)]));
        return { name, ...agentCounted(agent, state, byAgent.get(name), total), published };
      });
    },

    lag: (caller) => board.lag(caller && orgOf(caller, "board.read")),
    problems: setAside.problems,
    setAside: setAsideItems.list,
    discardSetAside: setAsideItems.discard,
    async retrySetAside(caller, id) {
      await setAsideItems.retry(caller, id);
      outbox.wake();
      board.recheck();
    },

    async correlation({ org }, correlationId) {
      const counted = await readState(org, correlationId);
      if (!counted) return undefined;
      const updated_at = new Date(context.clock.now()).toISOString();
      return { correlation_id: correlationId, ...counted, updated_at };
    },

    deadLetters: letters.list,
    deadLetter: letters.get,
    replay: letters.replay,
    replayAll: letters.replayAll,

    async pause(agent) {
      known(agent);
      await controls.pause(agent);
    },

    async resume(agent) {
      known(agent);
      await controls.resume(agent);
    },

    async cancelAgent(agent) {
      known(agent);
      await controls.cancelAgent(agent);
    },

    async pauseCorrelation(caller, correlationId) {
      await requireControl(caller, correlationId);
      await controls.pauseCorrelation(caller.org, correlationId);
    },

    async cancel(caller, correlationId) {
      await requireControl(caller, correlationId);
      const { org } = caller;
      await controls.cancel(org, correlationId);
      await schedule.cancel(org, correlationId);
      // Tasks that a pause holds become dead letters like the others.
      await controls.resumeCorrelation(org, correlationId);
    },

    async resumeCorrelation(caller, correlationId) {
      await requireControl(caller, correlationId);
      const isCancelled = controls.cancelled(caller.org, correlationId);
      const wasPaused = await controls.resumeCorrelation(caller.org, correlationId);
      if (wasPaused && !isCancelled) return 0;
      await controls.uncancel(caller.org, correlationId);
      let replayed = 0;
      for (const agent of names)
        replayed += (await letters.replayAll(caller, agent, { correlationId })).replayed;
      progress.correlationChanged(caller.org, correlationId);
      return replayed;
    },

    approvals: (caller) =>
      approvals.list(caller.org, { limit: LISTED_APPROVALS, show: (task) => taskFor(caller, task) }),
    async decide(caller, id, decision) {
      const { org, subject } = caller;
      if (!may(caller, "approval.decide", { org })) throw notFound("approval", id);
      const check = (task: Task) => requireDecider(caller, task);
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
