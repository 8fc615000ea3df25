import { commitEach } from "../../database/commit_each.ts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { GroupCommit, type Outcome } from "../../kit/group_commit.ts";
import type { Service } from "../../kit/service.ts";
import type { Board } from "../board.ts";
import type { Agent } from "../model/agent.ts";
import type { Failure, Task } from "../model/task.ts";
import { type Addition, gatherStatement, groupAddition } from "./gather_add.ts";
import { gatheredId, gatherSweep, MAX_BATCH_BYTES } from "./gather_sweep.ts";
import { type SweepOptions, startSweep } from "./sweep.ts";

export interface GatherOptions extends SweepOptions {
  /** Agents with a batch or a join. */
  readonly agents: readonly Agent[];
  /** About the largest JSON of a batch, however few artifacts it has; default 512 KiB. */
  readonly maxBytes?: number;
  /** Called with correlations whose artifacts were in a dropped join. */
  readonly onDropped?: (org: string, correlationId: string) => void;
}

/**
 * Batches and joins, stored as rows: they survive a restart, and all servers share them.
 *
 * A group belongs to one agent, org and key. The key of a join is the value of `by`; that of a batch is the agent's `key`,
 * or one group per org. A complete group becomes one task with that key, so the batches of an org run one after the
 * other unless the agent has a `key` or the order "none". In a join the first artifact of each type counts, as in Flock;
 * a later one of that type is ignored, except a newer version of the same artifact, which replaces it. An artifact that
 * arrives after its group was sent or dropped starts a new group.
 */
export interface Gather extends Service {
  /** Adds the task's artifact to its group. Idempotent. Resolves when it is durable. */
  add(agent: Agent, task: Task): Promise<void>;
}

/** The outcome of a new artifact. */
interface Added {
  /** Its group is complete, or may be due before the others. */
  readonly timely: boolean;
  /** Whether the group has it: not if it has another of its type. */
  readonly kept: boolean;
}

const MAX_AT_ONCE = 512;

/** Whether the task is a complete group, not a single artifact. */
export function isGathered(task: Task): boolean {
  return task.artifacts.length > 1 || task.id === gatheredId(task.agent, task.key, task.artifacts[0]);
}

/** The failure of a gathered task of a join whose time was up before it was complete; undefined for all others. */
export function incompleteJoin({ options: { join } }: Agent, task: Task): Failure | undefined {
  const types = new Set(task.artifacts.map(({ type }) => type));
  const missing = join?.types.filter((type) => !types.has(type)) ?? [];
  if (!join || missing.length === 0) return undefined;
  const list = (names: Iterable<string>) => [...names].map((name) => `"${name}"`).join(", ");
  const message = `The join "${task.key}" is incomplete after ${join.within} ms: it has ${list(types)} and lacks ${list(missing)}. Publish all of them again.`;
  return { class: "IncompleteJoin", message, kind: "fatal" };
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

  async function commit(additions: readonly Addition[]): Promise<Outcome[]> {
    const outcomes: Outcome[] = additions.map(() => ({ ok: undefined }));
    const rows = await database.query<{ n: number } & Added>(gatherStatement(additions));
    for (const { n, ...added } of rows) outcomes[n] = { ok: added };
    return outcomes;
  }

  const writes = new GroupCommit<Addition, Added | undefined>({
    commit: (additions) => commitEach(context, additions, { commit, isIdempotent: false }),
    sizeOf: ({ bytes }) => bytes,
    maxItems: MAX_AT_ONCE,
    maxBytes: 8 << 20,
    maxWaitingBytes: 64 << 20,
  });

  return {
    async add(agent, task) {
      const addition = groupAddition(agent, task, context.clock.now(), maxBytes);
      if (!addition) return;
      const added = await writes.write(addition);
      if (!added) return;
      if (!added.kept) {
        passedOver.add(1, { agent: agent.name });
        const { id, type } = task.artifacts[0];
        context.log.info(
          { agent: agent.name, artifact: id, type },
          "a join ignored a second artifact of a type",
        );
      }
      if (added.timely) sweep.wake();
    },
    async stop() {
      await writes.drain();
      await sweep.stop();
    },
  };
}
