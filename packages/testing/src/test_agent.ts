import type { Agent, Artifact, ArtifactDraft } from "@khala/server";
import type { Clock, Schemas } from "@khala/server/testing";
import {
  agentTask,
  makeArtifacts,
  matches,
  outputArtifacts,
  type Settlement,
  settlementForError,
  supervise,
  systemClock,
  type Task,
} from "@khala/server/testing";

/** How an attempt of an agent ended, as the board would settle it. */
export type AgentRun<Published = Artifact> =
  | { readonly outcome: "done"; readonly published: readonly Published[] }
  | { readonly outcome: "retry"; readonly delayMs: number; readonly error: unknown }
  | { readonly outcome: "dead"; readonly error: unknown };

export interface RunOptions {
  /** Starts at 1, the default. */
  readonly attempt?: number;
}

/** An agent to be tested. */
export interface TestedAgent<Accepts, Published> {
  /** What the agent publishes for an artifact, or for those of a batch or join. Throws what the agent throws. */
  run(artifacts: Accepts | readonly Accepts[], options?: RunOptions): Promise<readonly Published[]>;
  /** The same, and how the board settles it: an error is retried or becomes a dead letter. */
  settle(artifacts: Accepts | readonly Accepts[], options?: RunOptions): Promise<AgentRun<Published>>;
  /** Whether the agent consumes the artifact: its type, tags, labels, `from` and `where`. */
  accepts(artifact: Accepts): Promise<boolean>;
}

/** Tests an agent: payloads are checked by its schemas, on the way in and out, and its timeout applies. */
export function testAgent<Accepts extends object, Published extends object>(
  agent: Agent<Accepts, Published>,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): TestedAgent<Accepts, Published> {
  // The types above are those of the schemas, which check every payload here.
  const plain: Agent = agent as unknown as Agent;
  const schemas = plain.options.schemas ?? {};
  const made = (given: Accepts | readonly Accepts[]) =>
    artifactsOf([given].flat() as ArtifactDraft[], schemas, clock);

  // The schemas have checked each output.
  const published = (outputs: readonly object[]) => outputs as unknown as readonly Published[];

  async function attempt(given: Accepts | readonly Accepts[], { attempt: n = 1 }: RunOptions = {}) {
    const [first, ...rest] = await made(given);
    if (!first) throw new TypeError("Give the agent at least one artifact.");
    const unwanted = [first, ...rest].find((artifact) => !matches(plain, artifact));
    if (unwanted)
      throw new TypeError(
        `Agent "${plain.name}" does not consume this ${unwanted.type}: see its consumes, tags, from, labels and where.`,
      );
    const task: Task = {
      ...{ id: first.id, agent: plain.name, key: first.correlation_id ?? first.id, attempt: n },
      artifacts: [first, ...rest],
      created_at: first.created_at,
    };
    return { task, ...(await runTask(plain, task, schemas, { clock })) };
  }

  return {
    async run(given, options) {
      const { error, settlement } = await attempt(given, options);
      if (settlement.kind !== "done") throw error;
      return published(settlement.outputs);
    },
    async settle(given, options) {
      const { error, settlement } = await attempt(given, options);
      if (settlement.kind === "done") return { outcome: "done", published: published(settlement.outputs) };
      if (settlement.kind === "dead") return { outcome: "dead", error };
      return { outcome: "retry", delayMs: settlement.delayMs, error };
    },
    async accepts(artifact) {
      const [only] = await made(artifact);
      return matches(plain, only!);
    },
  };
}

/** Artifacts of the user "ada" of the org "demo". */
async function artifactsOf(
  drafts: readonly ArtifactDraft[],
  schemas: Schemas,
  clock: Clock,
): Promise<Artifact[]> {
  const author = { org: "demo", producedBy: "user:ada", depth: 0 };
  const newId = () => crypto.randomUUID();
  const made = await makeArtifacts(drafts, author, { schemas, clock, newId });
  return made.map(({ artifact }) => artifact);
}

export interface TaskRules extends Partial<Omit<Parameters<typeof outputArtifacts>[3], "schemas" | "clock">> {
  readonly clock: Clock;
}

/** Runs a task as a server does it, without slots, rate limits and circuit breakers. */
export async function runTask(
  agent: Agent,
  task: Task,
  schemas: Schemas,
  rules: TaskRules,
): Promise<{ readonly settlement: Settlement; readonly error?: unknown }> {
  const { clock } = rules;
  try {
    const { run } = agent.options;
    if (!run) throw new TypeError(`Agent "${agent.name}" has no run: workers claim its tasks over HTTP.`);
    const limits = { clock, timeoutMs: agent.timeoutMs, graceMs: 0, onAbandoned() {} };
    const never = new AbortController().signal;
    const output = await supervise((signal) => run(agentTask(task, undefined), signal), never, limits);
    const outputs = await outputArtifacts(output, task, undefined, {
      ...{ maxDepth: 32, known: async () => [] },
      ...rules,
      schemas,
    });
    return { settlement: { kind: "done", outputs } };
  } catch (error) {
    // Without jitter, so that a test may say when the next attempt is.
    return { settlement: settlementForError(error, task, agent, () => 1), error };
  }
}
