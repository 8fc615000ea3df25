import type { AgentCountedJson } from "@khala/contracts/blackboard/v1";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { Board } from "../board.ts";
import type { BoardObserver } from "../board_options.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import type { AgentCounts, CorrelationName } from "../model/counts.ts";
import type { BoardReport } from "../options.ts";
import { correlationState, readCorrelations, type WaitingCounts } from "./correlation_state.ts";
import { ReportQueue, type Subject } from "./progress_state.ts";
import { openSetAside, type SetAside } from "./set_aside.ts";
import type { AgentTotals, Totals } from "./totals.ts";

export interface ProgressOptions {
  readonly agents: readonly Agent[];
  readonly report: BoardReport;
  readonly totals: Totals;
  /** "running", "paused", "open" or "half_open". */
  readonly stateOf: (agent: string, org: string) => string;
  readonly cancelled: (org: string, correlationId: string) => boolean;
  readonly paused: (org: string, correlationId: string) => boolean;
  /** The waiting counts of these correlations, in the same order. */
  readonly waitingCounts: (names: readonly CorrelationName[]) => Promise<readonly WaitingCounts[]>;
  readonly setAside?: SetAside;
  /** The least interval between two reports of the same subject; default 250. */
  readonly everyMs?: number;
  /** Correlations, and pairs of agent and org, whose last report is remembered; default 10,000. */
  readonly remember?: number;
}

/** Reports the state of correlations and agents, from the board's activity. */
export interface Progress extends Service {
  readonly observer: BoardObserver;
  /** Something changed that the board does not see, such as a pause of the agent. */
  agentChanged(agent: string): void;
  /** The same for a correlation, such as its cancellation. */
  correlationChanged(org: string, correlationId: string): void;
}

/** Starts reporting. A change during a report is in the next one, so the last report is the final state. */
export function startProgress(
  board: Pick<Board, "countsOf" | "correlations">,
  context: Context,
  options: ProgressOptions,
): Progress {
  const { report, everyMs = 250, remember = 10_000, setAside = openSetAside(context) } = options;
  const agents = new Map(options.agents.map((agent) => [agent.name, agent]));
  const correlations = new ReportQueue(remember);
  const seats = new ReportQueue(remember);

  async function reportCorrelations(now: number): Promise<void> {
    await inParts(correlations, now, setAside, async (part) => {
      const found = await readCorrelations(board, options.waitingCounts, part);
      const byKey = new Map(part.map(({ key }, i) => [key, found[i]!]));
      return async (subject) => {
        const { key, org, name } = subject;
        const said = { cancelled: options.cancelled(org, name), paused: options.paused(org, name) };
        const counted = correlationState(byKey.get(key)!, said);
        if (counted)
          await reportChange(correlations, subject, counted, () => report.correlation(org, name, counted));
        // The backend's counts may lag, so poll until nothing is open or waiting.
        if (!counted || Number(counted.open) > 0 || counted.waits) correlations.again(subject, now);
      };
    });
  }

  async function reportAgents(now: number): Promise<void> {
    await inParts(seats, now, setAside, async (part) => {
      const [counts, totals] = await Promise.all([
        board.countsOf(part.map(({ org, name: agent }) => ({ org, agent }))),
        options.totals.share([...new Set(part.map(({ org }) => org))]),
      ]);
      const byKey = new Map(part.map(({ key }, i) => [key, counts[i]!]));
      return async (subject) => {
        const { key, org, name } = subject;
        const state = options.stateOf(name, org);
        const counted = agentCounted(agents.get(name)!, state, byKey.get(key), totals(name, org));
        const hasChanged = await reportChange(seats, subject, counted, () =>
          report.agent(org, name, counted),
        );
        // Another server may have reported older counts at the same time.
        if (hasChanged || counted.waiting !== "0" || counted.running !== "0") seats.again(subject, now);
      };
    });
  }

  function touch(artifact: Artifact, agent?: string): void {
    if (artifact.correlation_id) correlations.touch(artifact.org_id, artifact.correlation_id);
    if (agent !== undefined) seats.touch(artifact.org_id, agent);
  }

  const observer: BoardObserver = {
    published(artifacts) {
      for (const artifact of artifacts) touch(artifact);
    },
    routed(artifact, tasks) {
      if (tasks.length === 0) touch(artifact);
      for (const task of tasks) touch(artifact, task.agent);
    },
    settled(task, settlement) {
      const isAside = settlement.kind === "done" && settlement.aside;
      const isPostponed = settlement.kind === "retry" && settlement.uncounted;
      if (!isAside && !isPostponed) {
        const { agent, artifacts } = task;
        options.totals.settled({ agent, org: artifacts[0].org_id }, settlement);
      }
      for (const artifact of task.artifacts) touch(artifact, task.agent);
      if (settlement.kind === "done") for (const output of settlement.outputs) touch(output);
    },
    repeated() {},
  };

  async function flush(): Promise<void> {
    const now = context.clock.now();
    await reportCorrelations(now);
    await reportAgents(now);
    // An agent counts even if none of its tasks belongs to a reported org.
    if (options.totals.hasUnsaved()) await options.totals.share();
  }

  const loop = runLoop(context, LOOP, {
    wake: new Wake(),
    idleMs: everyMs,
    async step() {
      await flush();
      return false;
    },
  });
  return {
    observer,
    agentChanged: (agent) => seats.touchAll(agent),
    correlationChanged: (org, correlationId) => correlations.touch(org, correlationId),
    async stop() {
      const reported = loop
        .stop()
        .then(flush)
        .catch((error: Error) =>
          context.log.warn({ err: error.message }, "could not report the board's final state"),
        );
      await withTimeout(context.clock, LAST_MS, reported, undefined);
    },
  };
}

const LOOP = "board progress";
const PART = 100;
/** How long shutdown waits for a backend that does not answer. */
const LAST_MS = 2_000;

/** Processes due subjects in batches. A subject that fails is set aside; without the board all become due again. */
async function inParts(
  subjects: ReportQueue,
  now: number,
  setAside: SetAside,
  read: (part: readonly Subject[]) => Promise<(subject: Subject) => Promise<void>>,
): Promise<void> {
  const due = subjects.take(now);
  for (let at = 0; at < due.length; at += PART) {
    const part = due.slice(at, at + PART);
    const report = await read(part).catch((error) => {
      subjects.putBack(due.slice(at));
      throw error;
    });
    await Promise.all(
      part.map(async (subject) => {
        try {
          await report(subject);
          setAside.succeeded(LOOP, subject.org, subject.name);
        } catch (error) {
          setAside.failed(LOOP, subject.org, subject.name, error);
          subjects.fail(subject, now);
        }
      }),
    );
  }
}

/** Returns whether the report changed. */
async function reportChange(
  subjects: ReportQueue,
  subject: Subject,
  counted: object,
  report: () => Promise<void>,
): Promise<boolean> {
  const json = JSON.stringify(counted);
  if (!subjects.hasChanged(subject, json)) return false;
  await report();
  subjects.said(subject, json);
  return true;
}

/** The state of an agent, as it is reported and listed. */
export function agentCounted(
  { consumes }: Agent,
  state: string,
  count: AgentCounts | undefined,
  total: AgentTotals,
): AgentCountedJson {
  return {
    consumes: [...consumes],
    state,
    waiting: String(count?.waiting ?? 0),
    running: String(count?.running ?? 0),
    done: String(total.done),
    retried: String(total.retried),
    dead: String(count?.dead ?? 0),
  };
}
