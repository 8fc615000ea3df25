import type { Database } from "../../database/database.ts";
import { holdLease } from "../../database/lease.ts";
import type { Wakeups } from "../../database/wakeups.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { Board } from "../board.ts";
import type { BoardObserver, BoardOptions } from "../board_options.ts";
import { AgentWorker, type WorkerStore } from "./agent_worker.ts";
import type { BoardParts } from "./board_parts.ts";
import { ClaimStore } from "./claim_store.ts";
import { openCounts } from "./counts.ts";
import { Lanes } from "./lanes.ts";
import { Leases } from "./leases.ts";
import { Publisher } from "./publisher.ts";
import { openReads } from "./reads.ts";
import { purge } from "./retention.ts";
import { Settler } from "./settler.ts";
import type { Claim } from "./statements.ts";

export interface PostgresBoardOptions extends BoardOptions {
  /** Wakes the other processes, as `board:<agent>`. */
  readonly wakeups: Pick<Wakeups, "send">;
  /** How long a claim lasts without being renewed; 30,000 unless set. */
  readonly leaseMs?: number;
  /** The number of recent artifacts of an org that a list searches; 10,000 unless set. */
  readonly window?: number;
  /** How long artifacts and settled tasks are kept; 7 days unless set. */
  readonly retentionMs?: number;
  /** How long dead letters are kept; 90 days unless set. */
  readonly deadRetentionMs?: number;
  /** How often to poll for tasks, should a wake-up be lost; 1,000 unless set. */
  readonly pollMs?: number;
  /** How long stopping waits for running tasks; 10,000 unless set. */
  readonly stopMs?: number;
  /** Up to here the tasks of an agent are counted one by one: more are estimated. 100,000 unless set. */
  readonly countUpTo?: number;
}

/** The board on Postgres. */
export interface PostgresBoard extends Board {
  /** Under which name it claims tasks. */
  readonly holder: string;
  /** Handles a wake-up of another process; ignores those that are not the board's. */
  onWakeup(name: string): void;
  /** Wake-ups may have been lost. */
  recheck(): void;
}

const DAY = 86_400_000;
const PURGE_EVERY_MS = 3_600_000;
const PURGE_LEASE_MS = 60_000;
const PREFIX = "board:";
/** Above this many tasks at a time, other servers are woken at intervals: one claim of many tasks costs less than many claims. */
const FEW_TASKS = 16;
const CROWD_WAIT_MS = 10;

/**
 * Opens the board (ADR-0066).
 *
 * There is one shape of task: a row of `board_tasks`, from when its artifact is published until it is settled. Tasks are
 * written together with their artifact, in the statement that publishes or that settles.
 */
export async function openPostgresBoard(
  database: Database,
  context: Context,
  options: PostgresBoardOptions,
): Promise<PostgresBoard> {
  const { wakeups, leaseMs = 30_000, pollMs = 1_000, stopMs = 10_000, window = 10_000 } = options;
  const { retentionMs = 7 * DAY, deadRetentionMs = 90 * DAY, countUpTo = 100_000 } = options;
  const holder = context.newId();
  const workers = new Set<AgentWorker>();
  const parking = new Set<Promise<void>>();
  const parts: BoardParts = {
    database,
    context,
    options: { ...options, observer: guarded(options.observer, context) },
    lanes: new Lanes(options.agents),
    created(agents, tasks) {
      for (const agent of agents) {
        wake(agent);
        wakeups.send(PREFIX + agent, tasks > FEW_TASKS ? CROWD_WAIT_MS : undefined);
      }
    },
  };
  const claims = new ClaimStore(database, context.clock, { holder, leaseMs });
  const publisher = new Publisher(parts);
  const settler = new Settler(parts, holder);
  const leases = new Leases(database, context, holder, leaseMs);
  const services: Service[] = [leases, startPolling(), ...startPurging()];

  const store: WorkerStore = {
    async claim(agent, most) {
      const { claims: found, missing, nextDueMs } = await claims.claim(agent, most);
      for (const each of missing) park(each);
      return { claims: found, nextDueMs, full: found.length + missing.length === most };
    },
    settle: (finished) => settler.settle(finished),
    hold: (held, onLost) => leases.hold(held, onLost),
    drop: (claim) => leases.drop(claim),
    async release(released, begun) {
      for (const agent of await claims.release(released, begun)) wakeups.send(PREFIX + agent);
    },
  };

  function wake(agent: string): void {
    for (const worker of workers) if (worker.agent === agent) worker.wake();
  }

  /** If it cannot be parked now, its lease ends, and the next claim parks it. */
  function park(claim: Claim): void {
    const { agent } = claim.task;
    const parked = settler
      .park(claim)
      .catch((error) =>
        context.log.warn({ err: error.message, agent }, "a task without its artifact was not parked yet"),
      )
      .finally(() => parking.delete(parked));
    parking.add(parked);
  }

  /** Polls for the tasks of all agents with one statement. */
  function startPolling(): Service {
    return runLoop(context, "board polling", {
      wake: new Wake(),
      idleMs: pollMs,
      async step() {
        const agents = [...new Set([...workers].map(({ agent }) => agent))];
        if (agents.length === 0) return false;
        for (const agent of await claims.claimable(agents)) {
          claims.lookAtAll(agent);
          wake(agent);
        }
        return false;
      },
    });
  }

  function startPurging(): Service[] {
    const wake = new Wake();
    const lease = holdLease(database, context, "board", PURGE_LEASE_MS, () => wake.wake());
    const loop = runLoop(context, "board retention", {
      wake,
      idleMs: PURGE_EVERY_MS,
      async step() {
        if (lease.held()) await purge(database, context.clock.now(), { retentionMs, deadRetentionMs });
        return false;
      },
    });
    return [loop, lease];
  }

  let stopping: Promise<void> | undefined;
  async function stop(): Promise<void> {
    await Promise.all([...workers].map((worker) => worker.stop()));
    await Promise.all([publisher.drain(), settler.drain(), ...parking]);
    await Promise.all(services.map((service) => service.stop()));
  }

  return {
    holder,
    ...openReads(database, { window }),
    ...openCounts(database, { agents: options.agents, countUpTo }),
    publish: (artifacts) => publisher.publish(artifacts),
    enqueue: (tasks) => publisher.enqueue(tasks),

    consume(consumer) {
      const worker = new AgentWorker(context, consumer, store, { stopMs });
      workers.add(worker);
      return {
        async stop() {
          await worker.stop();
          workers.delete(worker);
        },
      };
    },

    onWakeup(name) {
      if (!name.startsWith(PREFIX)) return;
      wake(name.slice(PREFIX.length));
    },

    recheck() {
      for (const worker of workers) {
        claims.lookAtAll(worker.agent);
        worker.wake();
      }
    },

    stop() {
      stopping ??= stop();
      return stopping;
    },
  };
}

/** Reported work is committed: an observer that throws must not make it look otherwise. */
function guarded(observer: BoardObserver, { log }: Context): BoardObserver {
  const guard =
    <A extends unknown[]>(tell: (...args: A) => void) =>
    (...args: A) => {
      try {
        tell(...args);
      } catch (error) {
        log.error({ err: (error as Error).message }, "an observer of the board failed");
      }
    };
  return {
    published: guard((artifacts) => observer.published(artifacts)),
    routed: guard((artifact, tasks) => observer.routed(artifact, tasks)),
    settled: guard((task, settlement, place) => observer.settled(task, settlement, place)),
    repeated: guard((task) => observer.repeated(task)),
  };
}
