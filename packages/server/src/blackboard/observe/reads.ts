import type { CorrelationCountedJson } from "@khala/contracts/blackboard/v1";
import { orgOf } from "../../access/access.ts";
import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Board } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import { mayRead } from "../model/visibility.ts";
import type { BlackboardPlane } from "../plane.ts";
import type { Controls } from "../waiting/controls.ts";
import type { Workers } from "../work/workers.ts";
import { correlationState, readCorrelations, waitingCounts } from "./correlation_state.ts";
import { agentCounted } from "./progress.ts";
import type { Totals } from "./totals.ts";

export interface ReadsOptions {
  readonly database: Database;
  readonly clock: Clock;
  readonly board: Pick<Board, "get" | "recent" | "lag" | "correlations">;
  readonly counts: Pick<Board, "counts" | "countsOf">;
  readonly agents: readonly Agent[];
  readonly controls: Pick<Controls, "cancelled">;
  readonly isPaused: (org: string, correlationId: string) => boolean;
  readonly totals: Totals;
  readonly workers: Pick<Workers, "stateOf">;
}

/** What can be read of the board. */
export interface Reads {
  readonly plane: Pick<BlackboardPlane, "get" | "recent" | "agents" | "lag" | "correlation">;
  /** The state of a correlation; undefined if the org has nothing of it. */
  stateOf(org: string, correlationId: string): Promise<CorrelationCountedJson | undefined>;
}

/** While a list is not full, each query reads this many times further back, up to FURTHEST. */
const FURTHER = 8;
const FURTHEST = 10_000;

/** Opens the reads of the board. */
export function openReads(options: ReadsOptions): Reads {
  const { database, clock, board, agents, controls, isPaused, totals, workers } = options;

  async function stateOf(org: string, correlationId: string): Promise<CorrelationCountedJson | undefined> {
    const names = [{ org, name: correlationId }];
    const [standing] = await readCorrelations(board, (some) => waitingCounts(database, some), names);
    const said = { cancelled: controls.cancelled(org, correlationId), paused: isPaused(org, correlationId) };
    return correlationState(standing!, said);
  }

  const readable: BlackboardPlane["recent"] = async (caller, { type, correlationId, limit }) => {
    const query = {
      org: caller.org,
      ...(type !== undefined && { type }),
      ...(correlationId !== undefined && { correlationId }),
    };
    // Artifacts that the caller may not read are filtered out, so the list may need to read further back.
    for (let scanned = limit; ; scanned *= FURTHER) {
      const found = await board.recent({ ...query, limit: scanned });
      const shown = found.filter((artifact) => mayRead(caller, artifact));
      if (shown.length >= limit || found.length < scanned || scanned * FURTHER > FURTHEST)
        return shown.slice(0, limit);
    }
  };

  const plane: Reads["plane"] = {
    async get(caller, id, org = caller.org) {
      const artifact = await board.get(org, id);
      return artifact && mayRead(caller, artifact) ? artifact : undefined;
    },

    async recent(caller, query) {
      const found = await readable(caller, query);
      const { type, correlationId, limit } = query;
      if (correlationId === undefined || found.length === limit) return found;
      // An artifact without a correlation begins one with its own id. It is older than all others of it.
      const first = await board.get(caller.org, correlationId);
      const isOfIt = first && !first.correlation_id && (type === undefined || first.type === type);
      return isOfIt && mayRead(caller, first) ? [...found, first] : found;
    },

    async agents(caller) {
      const org = caller && orgOf(caller, "board.read");
      const [counted, totalsOf] = await Promise.all([
        org === undefined
          ? options.counts.counts()
          : options.counts.countsOf(agents.map(({ name: agent }) => ({ agent, org }))),
        totals.share(org === undefined ? undefined : [org]),
      ]);
      const byAgent = new Map(counted.map((each) => [each.agent, each]));
      return agents.map((agent) => {
        const { name } = agent;
        const state = workers.stateOf(name, caller?.org);
        const total = totalsOf(name, org);
        const published = Object.fromEntries([...total.published].map(([type, n]) => [type, String(n)]));
        return { name, ...agentCounted(agent, state, byAgent.get(name), total), published };
      });
    },

    lag: (caller) => board.lag(caller && orgOf(caller, "board.read")),

    async correlation({ org }, correlationId) {
      const counted = await stateOf(org, correlationId);
      if (!counted) return undefined;
      const updated_at = new Date(clock.now()).toISOString();
      return { correlation_id: correlationId, ...counted, updated_at };
    },
  };
  return { plane, stateOf };
}
