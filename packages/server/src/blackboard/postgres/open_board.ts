import type { Database } from "../../database/database.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import { holdLease, type Lease } from "../../database/lease.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Board, BoardObserver, BoardOptions } from "../board.ts";
import { ROUTER } from "../model/names.ts";
import { arrivalsOf } from "./arrivals.ts";
import { type Batches, startBatches } from "./batches.ts";
import { FEWEST, unbundleStatements } from "./bundles.ts";
import type { Claimed } from "./claimed.ts";
import { Claimer, type MissingTask, READY, RELEASE } from "./claims.ts";
import { Consumption, type Counter } from "./consume.ts";
import { Consumptions } from "./consumptions.ts";
import { openHandover } from "./handover.ts";
import { lanesOf } from "./lanes.ts";
import { Leases } from "./leases.ts";
import { parkMissing } from "./missing.ts";
import { makePartitions, sweepBoard } from "./partitions.ts";
import { type Desk, Publisher } from "./publish.ts";
import { openReads } from "./reads.ts";
import { startRouter } from "./router.ts";
import { Settler } from "./settle.ts";
import { Turns } from "./turns.ts";

export interface PostgresBoardOptions extends BoardOptions {
  /** Tells the other processes, as `board:<agent>`. */
  readonly wakeups: Pick<Wakeups, "send">;
  /** How long a task is a process's own without a sign of life; 30,000 unless set. */
  readonly leaseMs?: number;
  /** How many recent artifacts of an org are looked through; 10,000 unless set. */
  readonly window?: number;
  /** How long artifacts and settled tasks are kept; 7 days unless set. */
  readonly retentionMs?: number;
  /** How long dead letters are kept; 90 days unless set. */
  readonly deadRetentionMs?: number;
  /** How often to look for tasks, should a wakeup be lost; 1,000 unless set. */
  readonly pollMs?: number;
  /** From how many on tasks of one commit share a row, if nothing orders them; 16 unless set. */
  readonly bundleFrom?: number;
  /** How long stopping waits for work under way; 10,000 unless set. */
  readonly stopMs?: number;
  /** Up to here the tasks of an agent are counted one by one: more are estimated. 100,000 unless set. */
  readonly countUpTo?: number;
}

/** The board on Postgres. */
export interface PostgresBoard extends Board {
  /** Under which name it claims tasks. */
  readonly holder: string;
  /** Another process sent this wakeup; those of others than the board are passed over. */
  onWakeup(name: string): void;
  /** Wakeups may have been lost. */
  recheck(): void;
}

const DAY = 86_400_000;
const SWEEP_EVERY_MS = 3_600_000;
const SWEEP_LEASE_MS = 60_000;
const PREFIX = "board:";
/** Connections that claims of all agents use at a time, of the pool that all share. */
const CLAIMS_AT_ONCE = 2;
/** Of more than so many tasks at a time the others hear once in a while: a claim of many costs less than many claims. */
const FEW_TASKS = 16;
const CROWD_WAIT_MS = 10;

/**
 * Opens the board.
 *
 * A process that routes does so in the transaction that publishes, or that settles with outputs: an artifact and its
 * tasks are there together or not at all, and a hop is saved. What is published by a process that does not route waits
 * for one that does.
 *
 * Open tasks are in a small table of their own that they leave when they are settled; the row of the artifact keeps the
 * mark that they were made. So neither a claim nor a settlement touches a table that is partitioned or large, and what
 * is finished is dropped by the day. Those that nothing orders share rows of another small table until something else
 * becomes of them than success.
 */
export async function openPostgresBoard(
  database: Database,
  context: Context,
  options: PostgresBoardOptions,
): Promise<PostgresBoard> {
  const { wakeups, leaseMs = 30_000, pollMs = 1_000, stopMs = 10_000, window = 10_000 } = options;
  const { retentionMs = 7 * DAY, deadRetentionMs = 90 * DAY, countUpTo = 100_000 } = options;
  const holder = context.newId();
  const consumptions = new Consumptions();
  const routerWake = new Wake();
  const lanes = lanesOf(options.agents);
  const arrivals = arrivalsOf(options.agents);
  const gathering = new Map<Consumption, Batches>();
  const claimer = new Claimer(database, context.clock, { holder, leaseMs });
  const parking = new Set<Promise<void>>();
  await makePartitions(database, context.clock.now());

  function created(agents: ReadonlySet<string>, tasks = 1): void {
    for (const agent of agents) {
      wake(agent);
      wakeups.send(PREFIX + agent, tasks > FEW_TASKS ? CROWD_WAIT_MS : undefined);
    }
  }

  /** What comes for a batch is nothing to claim yet: who makes batches sees whether there is something. */
  function wake(agent: string): void {
    if (!arrivals.isBatched(agent)) return consumptions.wake(agent);
    for (const consumption of consumptions.of(agent)) gathering.get(consumption)?.wake();
  }

  function cameForward(agents: ReadonlySet<string>): void {
    for (const agent of agents) claimer.lookAtAll(agent);
    created(agents);
  }

  /** If it cannot be parked now, its lease ends, and whoever claims it then parks it. */
  function missing(agent: string, row: MissingTask): void {
    const parked = parkMissing(database, context, holder, agent, row)
      .then(cameForward)
      .catch((error) =>
        context.log.warn({ err: error.message, agent }, "a task without its artifact was not parked yet"),
      )
      .finally(() => parking.delete(parked));
    parking.add(parked);
  }

  const desk: Desk = {
    database,
    context,
    options: { ...options, observer: carefully(options.observer, context) },
    lanes,
    arrivals,
    fewest: options.bundleFrom ?? FEWEST,
    handover: openHandover(consumptions, { holder, leaseMs, lanes }),
    created,
    cameForward,
    missing,
    unrouted() {
      routerWake.wake();
      wakeups.send(PREFIX + ROUTER);
    },
  };
  const publisher = new Publisher(desk);
  const settler = new Settler(desk, holder);
  const leases = new Leases(database, context, holder, leaseMs);
  const turns = new Turns(CLAIMS_AT_ONCE);
  const services: Service[] = [leases];
  if (options.routes) services.push(startRouter(desk, routerWake, pollMs));
  services.push(startPolling(), ...startSweeping());

  const counter: Counter = {
    claim: (agent, most) =>
      turns.take(async () => {
        const claims = await claimer.claim(agent, most);
        for (const row of claims.missing) missing(agent, row);
        return claims;
      }),
    settle: (finished) => settler.settle(finished),
    hold: (claims, lost) => leases.hold(claims, lost),
    letGo: (claimed) => leases.letGo(claimed),
    release,
  };

  async function release(
    claims: readonly { readonly claim: Claimed; readonly begun: boolean }[],
  ): Promise<void> {
    const each = claims.map(({ claim }) => claim);
    const results = await database.transaction([
      ...unbundleStatements(holder, each),
      {
        name: "board_release",
        text: RELEASE,
        values: [
          holder,
          each.map(({ seq }) => seq),
          each.map(({ task }) => task.attempt),
          claims.map(({ begun }) => (begun ? 0 : 1)),
        ],
      },
    ]);
    for (const agent of new Set(results.at(-1)!.map((row) => row.agent as string)))
      wakeups.send(PREFIX + agent);
  }

  /** Looks for the tasks of all agents with one statement. */
  function startPolling(): Service {
    return runLoop(context, "board polling", {
      wake: new Wake(),
      idleMs: pollMs,
      async step() {
        const agents = consumptions.agents();
        if (agents.length === 0) return false;
        const ready = await database.query<{ agent: string }>({
          name: "board_ready",
          text: READY,
          values: [agents],
        });
        for (const { agent } of ready) {
          claimer.lookAtAll(agent);
          consumptions.wake(agent);
        }
        return false;
      },
    });
  }

  function startSweeping(): Service[] {
    const wake = new Wake();
    const lease: Lease = holdLease(database, context, "board", SWEEP_LEASE_MS, () => wake.wake());
    const loop = runLoop(context, "board sweep", {
      wake,
      idleMs: SWEEP_EVERY_MS,
      async step() {
        if (lease.held()) await sweepBoard(database, context.clock.now(), { retentionMs, deadRetentionMs });
        return false;
      },
    });
    return [loop, lease];
  }

  /** Whoever works on an agent's tasks makes tasks of what arrives for it. */
  function startGathering(consumption: Consumption): void {
    const known = options.agents.find(({ agent }) => agent === consumption.agent);
    if (!known?.batch) return;
    const { goesAlone = () => undefined } = options;
    const formed = (agent: string) => {
      consumptions.wake(agent);
      wakeups.send(PREFIX + agent);
    };
    const ready = (agent: string) => consumptions.wake(agent);
    const parts = { database, context, lanes, goesAlone, pollMs, formed, ready };
    gathering.set(consumption, startBatches({ ...known, batch: known.batch }, parts));
  }

  async function stopGathering(consumption: Consumption): Promise<void> {
    await gathering.get(consumption)?.stop();
    gathering.delete(consumption);
  }

  let stopping: Promise<void> | undefined;
  async function stop(): Promise<void> {
    await Promise.all([...gathering.keys()].map(stopGathering));
    await Promise.all(consumptions.all().map((consumption) => consumption.stop()));
    await Promise.all([publisher.drain(), settler.drain(), ...parking]);
    await Promise.all(services.map((service) => service.stop()));
  }

  return {
    holder,
    ...openReads(database, context.clock, { agents: options.agents, window, countUpTo }),
    publish: (artifacts) => publisher.publish(artifacts),
    enqueue: (tasks) => publisher.enqueue(tasks),

    consume(consumer) {
      const consumption = new Consumption(context, consumer, counter, { stopMs });
      consumptions.add(consumption);
      startGathering(consumption);
      return {
        async stop() {
          await stopGathering(consumption);
          await consumption.stop();
          consumptions.delete(consumption);
        },
      };
    },

    onWakeup(name) {
      if (!name.startsWith(PREFIX)) return;
      const agent = name.slice(PREFIX.length);
      wake(agent);
      if (agent === ROUTER) routerWake.wake();
    },

    recheck() {
      for (const consumption of consumptions.all()) {
        claimer.lookAtAll(consumption.agent);
        consumption.wake();
        gathering.get(consumption)?.wake();
      }
      routerWake.wake();
    },

    stop() {
      stopping ??= stop();
      return stopping;
    },
  };
}

/** What is told is done: an observer that fails must not make it look as if it were not. */
function carefully(observer: BoardObserver, { log }: Context): BoardObserver {
  const failed = (error: unknown) =>
    log.error({ err: (error as Error).message }, "an observer of the board failed");
  const tell = (what: () => void) => {
    try {
      what();
    } catch (error) {
      failed(error);
    }
  };
  return {
    published: (artifacts) => tell(() => observer.published(artifacts)),
    routed: (artifact, tasks) => tell(() => observer.routed(artifact, tasks)),
    settled(task, settlement, place) {
      try {
        observer.settled(task, settlement, place);
      } catch (error) {
        failed(error);
      }
    },
    repeated: (task) => tell(() => observer.repeated(task)),
  };
}
