import { type Database, isDataError, type Statement } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import type { Service } from "../../kit/service.ts";
import type { Board } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import type { Task } from "../model/task.ts";
import { type Addition, additionOf, addStatements, lockStatement } from "./gather_add.ts";
import { gatheredId, gatherSweep, MAX_BATCH_BYTES } from "./gather_sweep.ts";
import { type SweepOptions, startSweep } from "./sweep.ts";

export interface GatherOptions extends SweepOptions {
  /** Those that have a batch or a join; of others it knows nothing. */
  readonly agents: readonly Agent[];
  /** The JSON of a batch has about so many bytes at most, however few its artifacts are; 512 KiB unless set. */
  readonly maxBytes?: number;
  /** Hears of correlations of which artifacts were in a join that was dropped. */
  readonly onDropped?: (org: string, correlationId: string) => void;
}

/**
 * Batches and joins, as rows: they survive a restart, and all servers share them.
 *
 * A group is of one agent, one org and one key: of a join what `by` gives, of a batch what the agent's `key` gives, else
 * the org has one group. When it is complete it is one task with that key, so the batches of an org run one after the
 * other unless the agent has a `key`, or the order "none". In a join the first artifact of each type
 * counts, as in Flock; a later one of that type is passed over, except a newer version of the same artifact, which
 * takes its place. What comes after a group was sent or dropped begins a new one.
 */
export interface Gather extends Service {
  /** Puts the task's artifact into its group, once however often it comes. Resolves when that is durable. */
  add(agent: Agent, task: Task): Promise<void>;
}

const MAX_AT_ONCE = 100;

/** Whether the task is a complete group, and no single artifact that has to be gathered first. */
export function isGathered(task: Task): boolean {
  return task.artifacts.length > 1 || task.id === gatheredId(task.agent, task.key, task.artifacts[0]);
}

/** Opens the batches and joins of the app's agents. */
export function openGather(
  database: Database,
  board: Pick<Board, "enqueue">,
  context: Context,
  options: GatherOptions,
): Gather {
  const { agents, maxBytes = MAX_BATCH_BYTES, onDropped } = options;
  const passedOver = context.telemetry.meter.createCounter("khala_board_join_repeats_total", {
    description: "Artifacts whose type their join had already, by agent",
  });
  for (const { name, options: of } of agents) if (of.join) passedOver.add(0, { agent: name });
  const due = gatherSweep(database, board, context, agents, onDropped);
  const sweep = startSweep(context, "board gather", due, { batch: 20, ...options });

  /** Locks come in one order: processes that add to the same groups wait for each other, and never in a circle. */
  async function commit(additions: readonly Addition[]): Promise<Outcome[]> {
    const order = additions.map((_, i) => i).sort((a, b) => compare(additions[a]!, additions[b]!) || a - b);
    const outcomes: Outcome[] = [];
    try {
      const statements: Statement[] = [];
      const ends: number[] = [];
      for (const [n, i] of order.entries()) {
        const addition = additions[i]!;
        if (addition.lock !== additions[order[n - 1] ?? -1]?.lock)
          statements.push(lockStatement(addition.lock));
        ends[i] = statements.push(...addStatements(addition));
      }
      const rows = await database.transaction(statements);
      for (const [i, end] of ends.entries()) outcomes[i] = { ok: rows[end - 1]![0] };
    } catch (error) {
      if (additions.length === 1 || !isOwnFault(error)) throw error;
      // One of them is at fault, and fails alone.
      for (const [i, addition] of additions.entries())
        outcomes[i] = await commit([addition]).then(
          ([outcome]) => outcome!,
          (cause: unknown) => ({ error: cause }),
        );
    }
    return outcomes;
  }

  const writes = new GroupCommit<Addition, { timely: boolean; kept: boolean } | undefined>({
    commit,
    sizeOf: ({ bytes }) => bytes,
    maxItems: MAX_AT_ONCE,
    maxBytes: 8 << 20,
    maxWaitingBytes: 64 << 20,
  });

  return {
    async add(agent, task) {
      const addition = additionOf(agent, task, context.clock.now(), maxBytes);
      if (!addition) return;
      const added = await writes.write(addition);
      if (!added) return;
      if (!added.kept) {
        passedOver.add(1, { agent: agent.name });
        const { id, type } = task.artifacts[0];
        context.log.info({ agent: agent.name, artifact: id, type }, "a join has this type already");
      }
      // A group is complete, or there is a new one whose time may be the next that is up.
      if (added.timely) sweep.wake();
    },
    async stop() {
      await writes.drain();
      await sweep.stop();
    },
  };
}

function compare(a: Addition, b: Addition): number {
  return a.lock < b.lock ? -1 : a.lock > b.lock ? 1 : 0;
}

/** A deadlock is one of the statements' own, too: alone each of them gets through. */
function isOwnFault(error: unknown): boolean {
  return isDataError(error) || (error as { code?: string }).code === "40P01";
}
