import type { Agent, Artifact, ArtifactDraft } from "@khala/server";
import {
  approvalRules,
  createRouter,
  type DeadLetter,
  gatheredId,
  incompleteJoin,
  isoTime,
  type MadeArtifact,
  makeArtifacts,
  placeOf,
  type Schemas,
  type Settlement,
  type Task,
} from "@khala/server/testing";
import { ManualClock } from "./manual_clock.ts";
import { runTask } from "./test_agent.ts";

/** The part of an app that the board needs: `defineApp(…)`, or agents and schemas alone. */
export interface BoardApp<Draft extends object = ArtifactDraft> {
  readonly agents?: readonly Agent[];
  readonly schemas?: Schemas;
  readonly drafts?: Draft;
}

/** A blackboard in memory, with the agents of an app. Time stands still until `advance`. */
export interface TestBoard<Draft extends object = ArtifactDraft> {
  readonly clock: ManualClock;
  /** Publishes all or none, and runs agents until no task is ready. */
  publish(...drafts: readonly Draft[]): Promise<readonly Artifact[]>;
  /** Moves the clock: retries, delayed artifacts, and the ends of batches and joins fall due. */
  advance(ms: number): Promise<void>;
  /** Everything that was published, oldest first. */
  artifacts(type?: string): readonly Artifact[];
  /** Tasks that failed for good, oldest first. */
  deadLetters(agent?: string): readonly DeadLetter[];
  /** Tasks that wait for a decision, oldest first. */
  approvals(): readonly Task[];
  /** Lets such a task run, or makes it a dead letter. */
  decide(task: Task, decision: { readonly approved: boolean; readonly by?: string }): Promise<void>;
}

interface Group {
  readonly agent: Agent;
  readonly key: string;
  readonly needed: number;
  readonly slots: Map<string, Artifact>;
  readonly cancel: () => void;
}

/** Opens a board in memory. It routes, checks, retries, gathers and asks as the server does; it has no leases, lanes or limits. */
export function testBoard<Draft extends object = ArtifactDraft>(app: BoardApp<Draft>): TestBoard<Draft> {
  const { agents = [] } = app;
  const clock = new ManualClock();
  const schemas: Schemas = Object.assign({}, app.schemas, ...agents.map(({ options }) => options.schemas));
  const route = createRouter(agents, { clock });
  const byName = new Map(agents.map((agent) => [agent.name, agent]));
  const published: Artifact[] = [];
  const keys = new Set<string>();
  const dead: DeadLetter[] = [];
  const held: Task[] = [];
  const ready: Task[] = [];
  const groups = new Map<string, Group>();
  let working: Promise<void> | undefined;

  function put(artifacts: readonly Artifact[]): void {
    for (const artifact of artifacts) {
      const key = `${artifact.id} ${artifact.version}`;
      if (keys.has(key)) continue;
      keys.add(key);
      published.push(artifact);
      const routing = route(artifact);
      dead.push(...routing.dead);
      ready.push(...routing.tasks);
    }
  }

  function putLater(made: readonly MadeArtifact[]): void {
    for (const { artifact, notBefore = 0 } of made) {
      if (notBefore <= clock.now()) put([artifact]);
      else afterwards(notBefore - clock.now(), () => put([artifact]));
    }
  }

  function afterwards(ms: number, then: () => void): void {
    clock.after(ms, () => {
      then();
      void work();
    });
  }

  /** Runs ready tasks one after the other until there is none. */
  function work(): Promise<void> {
    working ??= (async () => {
      for (let task = ready.shift(); task; task = ready.shift()) await handle(task);
    })().finally(() => {
      working = undefined;
    });
    return working;
  }

  async function handle(task: Task): Promise<void> {
    const agent = byName.get(task.agent)!;
    const { batch, join } = agent.options;
    try {
      if ((batch || join) && !isGathered(task)) return gather(agent, task);
      if (task.approved_by === undefined && approvalRules(agent, task).length > 0)
        return void held.push(task);
    } catch (error) {
      // A rule of the agent threw.
      return settle(task, { kind: "dead", failure: failureFrom(error) });
    }
    // An agent without `run` works elsewhere.
    if (!agent.options.run) return;
    const known = async (_: string, ids: readonly string[]) => published.filter(({ id }) => ids.includes(id));
    const later = async (made: readonly MadeArtifact[]) => putLater(made);
    const { settlement } = await runTask(agent, task, schemas, { clock, known, later });
    settle(task, settlement);
  }

  function settle(task: Task, settlement: Settlement): void {
    if (settlement.kind === "done") return put(settlement.outputs);
    if (settlement.kind === "retry") {
      const next = { ...task, attempt: task.attempt + 1 };
      afterwards(settlement.delayMs, () => void ready.push(next));
      return;
    }
    const { id, agent, attempt: attempts } = task;
    const failed_at = isoTime(clock.now());
    dead.push({ id, agent, task, failure: settlement.failure, attempts, failed_at, origin: "agent" });
  }

  function gather(agent: Agent, task: Task): void {
    const [artifact] = task.artifacts;
    const place = placeOf(agent, task, artifact);
    if (!place) return;
    const name = JSON.stringify([agent.name, artifact.org_id, place.key]);
    const group = groups.get(name) ?? openGroup(name, agent, place);
    const there = group.slots.get(place.slot);
    if (!there || (there.id === artifact.id && there.version < artifact.version))
      group.slots.set(place.slot, artifact);
    if (group.slots.size >= group.needed) ready.push(close(name, group));
  }

  function openGroup(name: string, agent: Agent, place: NonNullable<ReturnType<typeof placeOf>>): Group {
    const { key, needed, ms } = place;
    const group: Group = {
      ...{ agent, key, needed, slots: new Map() },
      cancel: clock.after(ms, () => {
        const task = close(name, group);
        const failure = incompleteJoin(agent, task);
        if (failure) settle(task, { kind: "dead", failure });
        else ready.push(task);
        void work();
      }),
    };
    groups.set(name, group);
    return group;
  }

  function close(name: string, { agent, key, slots, cancel }: Group): Task {
    cancel();
    groups.delete(name);
    const types = agent.options.join?.types;
    const order = ({ type }: Artifact) => types?.indexOf(type) ?? 0;
    const [first, ...rest] = [...slots.values()].sort((a, b) => order(a) - order(b));
    const id = gatheredId(agent.name, key, first!);
    const created_at = isoTime(clock.now());
    return { id, agent: agent.name, artifacts: [first!, ...rest], key, attempt: 1, created_at };
  }

  return {
    clock,
    async publish(...drafts) {
      const author = { org: "demo", producedBy: "user:ada", depth: 0 };
      const rules = { schemas, clock, newId: () => crypto.randomUUID() };
      // The drafts have the types of the schemas, which check them here.
      const made = await makeArtifacts(drafts as readonly ArtifactDraft[], author, rules);
      putLater(made);
      await work();
      return made.map(({ artifact }) => artifact);
    },
    async advance(ms) {
      await clock.advance(ms, work);
    },
    artifacts: (type) => published.filter((artifact) => type === undefined || artifact.type === type),
    deadLetters: (agent) => dead.filter((letter) => agent === undefined || letter.agent === agent),
    approvals: () => [...held],
    async decide(task, { approved, by = "ada" }) {
      const at = held.indexOf(task);
      if (at < 0) throw new TypeError("This task does not wait for a decision: take one of approvals().");
      held.splice(at, 1);
      // A rejected task has ended, and published nothing.
      if (approved) ready.push({ ...task, approved_by: by });
      await work();
    },
  };
}

/** The board gives a group an id of its own. */
function isGathered({ id, agent, key, artifacts }: Task): boolean {
  return artifacts.length > 1 || id === gatheredId(agent, key, artifacts[0]);
}

type Failure = DeadLetter["failure"];

function failureFrom(error: unknown): Failure {
  const { name = "Error", message = String(error) } = error as Error;
  return { class: name, message, kind: "fatal" };
}
