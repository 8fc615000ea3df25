import {
  type ArtifactDraft,
  type Khala,
  type NewEvent,
  runs,
  type StreamDefinition,
  workers,
} from "@khala/server";
import { DEV } from "../client/tokens.ts";

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
/** The moments of the first round, which happen even without a watcher. */
const FIRST_ROUND = STEPS.length + 7;
/** The demo stops publishing at this many dead letters. */
const ENOUGH_DEAD = 5;

/** The publisher of the demo's artifacts. */
const CALLER = { org: DEV.org, subject: DEV.sub, scopes: new Set(["blackboard:write"]) };

type Data = NonNullable<NewEvent["data"]>;

/** Something that happens: events of a stream, or an artifact on the blackboard. */
type Moment = Appended | { readonly publish: ArtifactDraft };

interface Appended {
  readonly stream: StreamDefinition;
  readonly id: string;
  readonly events: readonly (readonly [type: string, data?: Data])[];
}

/**
 * Generates activity for the demo: one worker, and a handful of runs that replace each other. After the first round it
 * continues only while a client follows, so that an unwatched server is idle.
 */
export function startActivity(
  khala: Pick<Khala, "authority" | "blackboard" | "watched">,
  options: ActivityOptions,
): () => Promise<void> {
  const story = moments();
  let done = 0;
  let running = next();

  const timer = setInterval(() => {
    if (done < FIRST_ROUND || khala.watched()) running = running.then(next);
  }, options.everyMs);

  async function next(): Promise<void> {
    const moment = story.next().value;
    done++;
    try {
      if ("publish" in moment) await publish(moment.publish);
      else await append(moment);
    } catch (error) {
      options.onError(error);
    }
  }

  async function append({ stream, id, events }: Appended): Promise<void> {
    await khala.authority.append({
      stream,
      streamId: id,
      events: events.map(([type, data = {}]) => ({ event_id: options.newId(), type, data })),
      org: DEV.org,
      actor: DEV.sub,
    });
  }

  async function publish(draft: ArtifactDraft): Promise<void> {
    const agents = await khala.blackboard.agents();
    if (agents.some(({ dead }) => Number(dead) >= ENOUGH_DEAD)) return;
    const correlation_id = `demo-${options.newId()}`;
    await khala.blackboard.publish(CALLER, [{ ...draft, correlation_id }]);
  }

  return async () => {
    clearInterval(timer);
    await running;
  };
}

/** An endless sequence: a worker registers, works on one run after the other, and publishes a topic for the agents after each. */
function* moments(): Generator<Moment, never> {
  const worker = (type: string, data: Data = {}): Moment => ({
    stream: workers,
    id: "demo-worker",
    events: [[type, data]],
  });
  yield worker("worker.registered", { name: "Demo worker", capabilities: ["demo"] });
  for (let round = 0; ; round++) {
    const id = `demo-${(round % RUNS) + 1}`;
    const run = (...events: Appended["events"]): Moment => ({ stream: runs, id, events });
    // Ids repeat, so that a demo that is watched for days still has a handful of runs.
    yield run(["run.deleted"], ["run.started", { title: TITLES[round % TITLES.length]! }]);
    yield worker("worker.status", { status: "busy" });
    for (const name of STEPS) yield run(["run.step", { name, status: "ok" }]);
    yield round % 4 === 3
      ? run(["run.failed", { error: "the tool failed" }])
      : run(["run.completed", { result: "done" }]);
    yield worker("worker.status", { status: "idle" });
    yield worker("worker.heartbeat");
    yield { publish: { type: "Topic", payload: { topic: TITLES[round % TITLES.length]! } } };
  }
}
