import type { PartitionLagJson } from "@khala/contracts/blackboard/v1";
import type { Database } from "../../database/database.ts";
import type { Clock } from "../../kit/clock.ts";
import type { AgentCounts, Board, BoardOptions } from "../board.ts";
import { ROUTER } from "../model/names.ts";
import { MOST_TOGETHER } from "./bundles.ts";
import { KeptFigures } from "./kept_figures.ts";
import { QUEUE } from "./statements.ts";

/** Open tasks and dead letters of agents, of each kind up to a number: agents, number. */
const COUNTS = "SELECT c.* FROM runtime.board_counts($1, $2) c";

/** What nobody has routed yet, up to a number. */
const UNROUTED = `
SELECT count(*) AS n FROM (SELECT FROM runtime.board_unrouted u ORDER BY u.seq LIMIT $1) u`;

type Counted = Readonly<Record<"heads" | "running" | "behind" | "arrived" | "dead", bigint>>;

export interface CountsOptions extends Pick<BoardOptions, "agents"> {
  /** Up to here tasks of an agent are counted one by one. */
  readonly countUpTo: number;
}

/** Counts what agents have to do. A longer queue than can be counted is estimated, and its figures may be a few seconds old. */
export function openCounts(
  database: Database,
  clock: Clock,
  { agents, countUpTo }: CountsOptions,
): Pick<Board, "counts" | "lag"> {
  const names = agents.map(({ agent }) => agent);
  const kept = new KeptFigures<AgentCounts>(clock, {
    nameOf: ({ agent }) => agent,
    rowsOf: ({ waiting, running }) => waiting + running,
  });

  /** How many rows the planner expects: as good as the statistics, which are a minute old as a rule. */
  async function estimate(from: string, values: readonly unknown[] = []): Promise<number> {
    const [row] = await database.query<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>({
      text: `EXPLAIN (FORMAT JSON) SELECT FROM ${from}`,
      values: [...values],
    });
    return row!["QUERY PLAN"][0].Plan["Plan Rows"];
  }

  async function countsOf(agent: string, counted: Counted): Promise<AgentCounts> {
    const running = Number(counted.running);
    let open = Number(counted.heads + counted.behind);
    if (open >= countUpTo) {
      const rows = await estimate("runtime.board_queue q WHERE q.agent = $1", [agent]);
      const bundled = MOST_TOGETHER * (await estimate("runtime.board_bundles o WHERE o.agent = $1", [agent]));
      // Of a table without statistics the planner expects a few rows, and here each stands for many.
      open = Math.max(open, rows + (bundled >= countUpTo ? bundled : 0));
    }
    return { agent, waiting: open - running + Number(counted.arrived), running, dead: Number(counted.dead) };
  }

  async function count(names: readonly string[]): Promise<AgentCounts[]> {
    const rows = await database.query<{ agent: string } & Counted>({
      name: "board_counts",
      text: COUNTS,
      values: [names, countUpTo],
    });
    return Promise.all(rows.map(({ agent, ...counted }) => countsOf(agent, counted)));
  }

  const counts = () => kept.get(names, count);

  async function unrouted(): Promise<number> {
    const [row] = await database.query<{ n: bigint }>({
      name: "board_unrouted_count",
      text: UNROUTED,
      values: [countUpTo],
    });
    const counted = Number(row!.n);
    return counted < countUpTo ? counted : Math.max(counted, await estimate("runtime.board_unrouted"));
  }

  return {
    counts,
    async lag() {
      return [
        lagOf(ROUTER, "runtime.board_unrouted", await unrouted()),
        ...(await counts()).map(({ agent, waiting, running }) => lagOf(agent, QUEUE, waiting + running)),
      ];
    },
  };
}

function lagOf(reader: string, topic: string, lag: number): PartitionLagJson {
  return { reader, topic, partition: 0, lag: String(lag), lag_high: String(lag) };
}
