import { type Khala, type NewEvent, runs, type StreamDefinition, workers } from "@khala/server";
import { DEV } from "../names.ts";

export interface ActivityOptions {
  readonly everyMs: number;
  /** A new id for each event. */
  readonly newId: () => string;
  readonly onError: (error: unknown) => void;
}

const RUNS = 5;
const TITLES = [
  "Summarise the inbox",
  "Review a pull request",
  "Plan a trip",
  "Reconcile invoices",
  "Draft a reply",
];
const STEPS = ["read", "think", "call a tool", "write"];
/** Events of the worker and of its first run: what is told even when nobody is there yet. */
const FIRST_ROUND = STEPS.length + 6;

type Data = NonNullable<NewEvent["data"]>;

interface Moment {
  readonly stream: StreamDefinition;
  readonly id: string;
  readonly events: readonly (readonly [type: string, data?: Data])[];
}

/**
 * Makes the demo move: a moment at a time, of one worker and a handful of runs that replace each other. After the first
 * round it goes on only while somebody follows, so that a server that nobody watches is idle.
 */
export function startActivity(
  khala: Pick<Khala, "authority" | "sync">,
  options: ActivityOptions,
): () => Promise<void> {
  const story = tell();
  let told = 0;
  let telling = goOn();

  const timer = setInterval(() => {
    if (told < FIRST_ROUND || isWatched(khala)) telling = telling.then(goOn);
  }, options.everyMs);

  async function goOn(): Promise<void> {
    const { stream, id, events } = story.next().value;
    told++;
    try {
      await khala.authority.append({
        stream,
        streamId: id,
        events: events.map(([type, data = {}]) => ({ event_id: options.newId(), type, data })),
        org: DEV.org,
        actor: DEV.sub,
      });
    } catch (error) {
      options.onError(error);
    }
  }

  return async () => {
    clearInterval(timer);
    await telling;
  };
}

function isWatched({ sync }: Pick<Khala, "sync">): boolean {
  return sync.hub.open().some((feed) => feed.liveCount > 0);
}

/** The story, without end: a worker comes, and works on one run after the other. */
function* tell(): Generator<Moment, never> {
  const worker = (type: string, data: Data = {}): Moment => ({
    stream: workers,
    id: "demo-worker",
    events: [[type, data]],
  });
  yield worker("worker.registered", { name: "Demo worker", capabilities: ["demo"] });
  for (let round = 0; ; round++) {
    const id = `demo-${(round % RUNS) + 1}`;
    const run = (...events: Moment["events"]): Moment => ({ stream: runs, id, events });
    // Ids come round again, so that a demo that is watched for days still has a handful of runs.
    yield run(["run.deleted"], ["run.started", { title: TITLES[round % TITLES.length]! }]);
    yield worker("worker.status", { status: "busy" });
    for (const name of STEPS) yield run(["run.step", { name, status: "ok" }]);
    yield round % 4 === 3
      ? run(["run.failed", { error: "the tool gave up" }])
      : run(["run.completed", { result: "done" }]);
    yield worker("worker.status", { status: "idle" });
    yield worker("worker.heartbeat");
  }
}
