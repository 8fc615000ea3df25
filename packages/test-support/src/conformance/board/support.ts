import { createHash, randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, vi } from "vitest";
import type { Board } from "../../../../server/src/blackboard/board.ts";
import type {
  BoardObserver,
  BoardOptions,
  RecordPosition,
  Routing,
} from "../../../../server/src/blackboard/board_options.ts";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
import type { DeadLetter, Settlement, Task } from "../../../../server/src/blackboard/model/task.ts";
import { systemClock } from "../../../../server/src/kit/clock.ts";
import { uuidv7 } from "../../../../server/src/kit/ids.ts";

/** A new board, and the actions that only its driver can take. */
export interface BoardUnderTest extends AsyncDisposable {
  /** Another process's handle on the board. Disposing of the board stops the handles that still run. */
  open(options: BoardOptions): Promise<Board>;
  /** Whether other content under a known id and version is refused, and not taken for a duplicate. */
  readonly conflicts: boolean;
  /** Whether the tasks of one org can be counted. */
  readonly countsOrgs?: boolean;
  /** The largest artifact it accepts, in bytes of JSON; it refuses one twice as large. Undefined without a limit. */
  readonly maxBytes?: number;
  /** The number of partitions: keys in the same one run in order where that is the order. */
  readonly partitions: number;
  /** Moves the time for which tasks wait forward. */
  jump?(ms: number): Promise<void>;
  /** Takes away a process's running tasks, as if its lease had expired. */
  usurp?(board: Board): Promise<void>;
  /** Lets processes renew their leases now, which tells them what they have lost. */
  renew?(): void;
}

export type OpenBoard = () => Promise<BoardUnderTest>;
export type AgentRules = BoardOptions["agents"][number];

/** The order of a test's agent: by key and not strict by default. */
export function rules(agent: string, given: Partial<AgentRules> = {}): AgentRules {
  return { agent, order: "key", strict: false, ...given };
}

/** Records the events of all processes of a test. */
export class Heard implements BoardObserver {
  readonly publications: Artifact[] = [];
  readonly routings: { readonly artifact: Artifact; readonly tasks: readonly Task[] }[] = [];
  readonly settlements: {
    readonly task: Task;
    readonly settlement: Settlement;
    readonly place: RecordPosition;
  }[] = [];
  readonly repetitions: Task[] = [];
  /** The readers of records that could not be decoded. */
  readonly unread: string[] = [];

  published(artifacts: readonly Artifact[]): void {
    this.publications.push(...artifacts);
  }
  routed(artifact: Artifact, tasks: readonly Task[]): void {
    this.routings.push({ artifact, tasks });
  }
  settled(task: Task, settlement: Settlement, place: RecordPosition): void {
    this.settlements.push({ task, settlement, place });
  }
  repeated(task: Task): void {
    this.repetitions.push(task);
  }
  unreadable(agent: string): void {
    this.unread.push(agent);
  }
  /** The outcomes of an agent's tasks, in order. */
  settledBy(agent: string) {
    return this.settlements.filter(({ task }) => task.agent === agent);
  }
}

/** The fixtures of a describe block: one board with two processes that route, and one recorder for both. */
export interface Stage {
  readonly under: BoardUnderTest;
  readonly a: Board;
  readonly b: Board;
  readonly heard: Heard;
  /** A further process. */
  open(given?: Partial<BoardOptions>): Promise<Board>;
}

/** Opens a board for the tests of a describe block. Each of them uses agents, keys and correlations of its own. */
export function stage(open: OpenBoard, agents: readonly AgentRules[]): () => Stage {
  let opened: Stage;
  beforeAll(async () => {
    const under = await open();
    const heard = new Heard();
    const options = { agents, route: routeByTags, observer: heard };
    const another = (given: Partial<BoardOptions> = {}) => under.open({ ...options, ...given });
    const [a, b] = await Promise.all([another(), another()]);
    opened = { under, heard, a, b, open: another };
  }, 120_000);
  afterAll(() => opened?.under[Symbol.asyncDispose](), 120_000);
  return () => opened;
}

export const newId = uuidv7(systemClock);
/** A unique key or correlation. */
export const newName = (prefix: string) => `${prefix}-${randomUUID()}`;

type Given = Partial<Artifact> & {
  /** The agents it is for. */
  readonly to?: string | readonly string[];
  /** The agents whose matching fails on it. */
  readonly breaks?: string;
};

/** An artifact routed by its tags. */
export function makeTestArtifact({ to = [], breaks, tags = [], ...given }: Given = {}): Artifact {
  const receivers = typeof to === "string" ? [to] : to;
  return {
    id: newId(),
    type: "Draft",
    payload: null,
    produced_by: "user:ann",
    visibility: { kind: "org" },
    version: 1,
    created_at: new Date().toISOString(),
    org_id: "acme",
    depth: 0,
    ...given,
    tags: [...tags, ...receivers.map((agent) => `to:${agent}`), ...(breaks ? [`breaks:${breaks}`] : [])],
  };
}

/** Artifacts with the payloads 1 to `count`, for one agent and under one key. */
export function numbered(to: string | readonly string[], key: string, count: number): Artifact[] {
  return range(1, count).map((payload) => makeTestArtifact({ to, partition_key: key, payload }));
}

/** The task that an artifact leads to, as the board's router makes it. */
export function makeTestTask(agent: string, artifact: Artifact, given: Partial<Task> = {}): Task {
  return {
    id: artifact.version === 1 ? artifact.id : derivedId(artifact),
    agent,
    artifacts: [artifact],
    key: artifact.partition_key ?? artifact.correlation_id ?? artifact.id,
    attempt: 1,
    created_at: artifact.created_at,
    ...given,
  };
}

/** A task for each tag "to:<agent>", and a dead letter for each "breaks:<agent>". */
export function routeByTags(artifact: Artifact): Routing {
  const named = (prefix: string) =>
    artifact.tags.filter((tag) => tag.startsWith(prefix)).map((tag) => tag.slice(prefix.length));
  return {
    tasks: named("to:").map((agent) => makeTestTask(agent, artifact)),
    dead: named("breaks:").map((agent): DeadLetter => {
      const task = makeTestTask(agent, artifact);
      const failure = { class: "TypeError", message: "where() threw", kind: "fatal" } as const;
      const failed_at = artifact.created_at;
      return { id: task.id, agent, task, failure, attempts: 0, failed_at, origin: "router" };
    }),
  };
}

/** A UUID that is the same for the same id and version. */
function derivedId({ id, version }: Artifact): string {
  const hash = createHash("sha256").update(`${id}:${version}`).digest("hex");
  return `${id.slice(0, 14)}7${hash.slice(0, 3)}-a${hash.slice(3, 6)}-${hash.slice(6, 18)}`;
}

/** from..to */
export const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Waits until the assertions hold, within the time a busy machine may need. */
export async function eventually(assertions: () => unknown): Promise<void> {
  await vi.waitFor(assertions, { timeout: 80_000, interval: 20 });
}

/** Waits until everything published before on this key is routed and in the index of these processes. */
export async function caughtUp({ heard }: Stage, boards: readonly Board[], key: string): Promise<void> {
  const mark = makeTestArtifact({ type: "Mark", partition_key: key, org_id: "marks" });
  await boards[0]!.publish([mark]);
  await eventually(() => expect(heard.routings.some(({ artifact }) => artifact.id === mark.id)).toBe(true));
  for (const board of boards)
    await eventually(async () => expect(await board.get(mark.org_id, mark.id)).toEqual(mark));
}
