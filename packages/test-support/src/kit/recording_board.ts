import type { Board } from "../../../server/src/blackboard/board.ts";
import type { Agent, AgentOptions } from "../../../server/src/blackboard/model/agent.ts";
import type { Artifact } from "../../../server/src/blackboard/model/artifact.ts";
import { idempotencyKey, type Task } from "../../../server/src/blackboard/model/task.ts";
import { Changes } from "./until.ts";

/** The two writing methods of a board, for code that takes work off it: records each call, and fails on request. */
export class RecordingBoard extends Changes implements Pick<Board, "publish" | "enqueue"> {
  /** Every task and artifact of every call that was not refused, with repetitions. */
  readonly enqueued: Task[] = [];
  readonly published: Artifact[] = [];
  /** The outcome of each call, one after the other: refused, or accepted and then failed, as by a broken connection. */
  readonly failures: ("before" | "after")[] = [];
  /** Refuses calls for which this is true. */
  refuses: (item: Task | Artifact) => boolean = () => false;

  /** The tasks a board would run: each once, by id and replay. */
  get tasks(): Task[] {
    return [...new Map(this.enqueued.map((task) => [idempotencyKey(task), task])).values()];
  }

  /** The artifacts a board would have. */
  get artifacts(): Artifact[] {
    return [
      ...new Map(this.published.map((artifact) => [`${artifact.id}:${artifact.version}`, artifact])).values(),
    ];
  }

  async enqueue(tasks: readonly Task[]): Promise<void> {
    this.#take(tasks, this.enqueued);
  }

  async publish(artifacts: readonly Artifact[]): Promise<("published" | "duplicate")[]> {
    const had = this.artifacts.map(({ id, version }) => `${id}:${version}`);
    this.#take(artifacts, this.published);
    return artifacts.map(({ id, version }) => (had.includes(`${id}:${version}`) ? "duplicate" : "published"));
  }

  #take<T extends Task | Artifact>(items: readonly T[], into: T[]): void {
    const failure = this.failures.shift();
    if (failure === "before" || items.some(this.refuses)) throw new Error("the board does not answer");
    into.push(...items);
    this.changed();
    if (failure === "after") throw new Error("the answer of the board was lost");
  }
}

/** An artifact of org "acme". */
export function testArtifact(id: string, more: Partial<Artifact> = {}): Artifact {
  return {
    id,
    type: "Draft",
    payload: { text: id },
    tags: [],
    produced_by: "user:ada",
    visibility: { kind: "org" },
    version: 1,
    created_at: "2026-01-01T00:00:00.000Z",
    org_id: "acme",
    depth: 0,
    ...more,
  };
}

/** The task made of one artifact. */
export function testTask(agent: string, artifact: Artifact, more: Partial<Task> = {}): Task {
  return {
    id: artifact.id,
    agent,
    artifacts: [artifact],
    key: artifact.correlation_id ?? artifact.id,
    attempt: 1,
    created_at: artifact.created_at,
    ...more,
  };
}

/** An agent with these options and no work. */
export function testAgent(name: string, options: Partial<AgentOptions>): Agent {
  const consumes = [options.consumes ?? options.join?.types ?? "Draft"].flat();
  return {
    name,
    consumes,
    options: { consumes, ...options },
    order: "key",
    strict: false,
    concurrency: 10,
    priority: 0,
    timeoutMs: 1_000,
    retry: { attempts: 5, base: 1_000, cap: 300_000 },
  };
}
