import { artifactKey } from "@khala/contracts";
import { isoTime } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { sha256 } from "../../kit/hash.ts";
import type { Routing } from "../board_options.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import { failureOf } from "../model/errors.ts";
import { producer } from "../model/names.ts";
import { type DeadLetter, idempotencyKey, type Task } from "../model/task.ts";

/** Keys are columns, record keys and parts of documents, so they are bounded and must be valid text in all of these. */
const MAX_KEY = 1_024;
const NOWHERE: Routing = Object.freeze({ tasks: [], dead: [] });

/** Whether the agent consumes the artifact. Throws what its `where` throws. */
export function matches(agent: Agent, artifact: Artifact): boolean {
  const { options } = agent;
  if (!agent.consumes.includes(artifact.type) || !sees(agent, artifact)) return false;
  if (!options.selfTrigger && artifact.produced_by === producer(agent.name)) return false;
  // Other languages may omit an empty list.
  const tags = artifact.tags ?? [];
  if (!(options.tags ?? []).every((tag) => tags.includes(tag))) return false;
  if (options.from && !options.from.some((pattern) => fits(pattern, artifact.produced_by))) return false;
  return options.where ? answer(options.where(artifact)) : true;
}

/** Creates the routing function: a task for each matching agent, a dead letter where a predicate or key threw. */
export function createRouter(
  agents: readonly Agent[],
  { clock }: Pick<Context, "clock">,
): (artifact: Artifact) => Routing {
  const byType = indexed(agents);
  return (artifact) => {
    const candidates = byType.get(artifact?.type);
    // An artifact without an id cannot be deduplicated. A driver that decodes records rejects it before this point.
    if (!candidates || typeof artifact.id !== "string") return NOWHERE;
    const tasks: Task[] = [];
    const dead: DeadLetter[] = [];
    const now = isoTime(clock.now());
    for (const agent of candidates) {
      try {
        if (matches(agent, artifact)) tasks.push(taskOf(agent, artifact, orderKey(agent, artifact), now));
      } catch (error) {
        dead.push(unroutable(taskOf(agent, artifact, artifactKey(artifact, sha256), now), error, now));
      }
    }
    return { tasks, dead };
  };
}

/** The id of an artifact's task: the artifact's own id, unless it is a later version. */
export function taskId({ id, version }: Pick<Artifact, "id" | "version">): string {
  return Number.isInteger(version) && version > 1 ? derivedId(id, `${id}:${version}`) : id;
}

/** The ordering key of a task. Throws what the agent's `key` throws. */
function orderKey(agent: Agent, artifact: Artifact): string {
  const key: unknown = agent.options.key?.(artifact) ?? "";
  if (typeof key !== "string") throw new TypeError(`key must return a string, not ${typeof key}.`);
  if (key.length > MAX_KEY) throw new TypeError(`key must return at most ${MAX_KEY} characters.`);
  if (key.includes("\0") || !key.isWellFormed()) throw new TypeError("key must return a string without NUL.");
  return key || artifactKey(artifact, sha256);
}

function indexed(agents: readonly Agent[]): Map<unknown, Agent[]> {
  const byType = new Map<unknown, Agent[]>();
  const names = new Set<string>();
  for (const agent of agents) {
    if (names.has(agent.name))
      throw new TypeError(`Two agents have the name "${agent.name}". Rename one of them.`);
    names.add(agent.name);
    for (const type of agent.consumes) {
      const others = byType.get(type);
      if (others) others.push(agent);
      else byType.set(type, [agent]);
    }
  }
  return byType;
}

function sees(agent: Agent, { visibility }: Artifact): boolean {
  switch (visibility?.kind ?? "org") {
    case "public":
    case "org":
      return true;
    case "labelled": {
      // An agent cannot match an artifact that has no label.
      const labels = visibility.labels ?? [];
      return labels.length > 0 && labels.every((label) => agent.options.labels?.includes(label));
    }
    case "private":
      return (visibility.agents ?? []).includes(agent.name);
    default:
      return false;
  }
}

function fits(pattern: string, producedBy: string): boolean {
  return pattern.endsWith("*") ? producedBy.startsWith(pattern.slice(0, -1)) : producedBy === pattern;
}

/** A promise would count as true, whatever it resolves to. */
function answer(result: unknown): boolean {
  if (typeof result === "boolean") return result;
  if (result instanceof Promise) result.catch(() => undefined);
  throw new TypeError("where must return true or false, not a promise. Do asynchronous work in run.");
}

function taskOf(agent: Agent, artifact: Artifact, key: string, now: string): Task {
  return { id: taskId(artifact), agent: agent.name, artifacts: [artifact], key, attempt: 1, created_at: now };
}

/** The id is derived, so that routing the artifact again creates no second dead letter. */
function unroutable(task: Task, error: unknown, now: string): DeadLetter {
  return {
    id: derivedId(task.id, `${idempotencyKey(task)}:unroutable`),
    agent: task.agent,
    task,
    failure: failureOf(error, "fatal"),
    attempts: 0,
    failed_at: now,
    origin: "router",
  };
}
