import type { Counter } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import type { Agent } from "../model/agent.ts";
import type { Artifact } from "../model/artifact.ts";
import { derivedId } from "../model/derived_id.ts";
import type { Task } from "../model/task.ts";

/** The JSON of a batch has about so many bytes at most, however few its artifacts are. */
export const MAX_BATCH_BYTES = 512 << 10;

/** Counts batches and joins that ended. */
export function groupsCounter({ telemetry }: Pick<Context, "telemetry">): Counter {
  return telemetry.meter.createCounter("khala_board_groups_total", {
    description: "Batches and joins that ended, by agent and outcome",
  });
}

/** The id of a group's task. An artifact is gathered once by an agent, so the first of a group names it. */
export function gatheredId(agent: string, key: string, first: Pick<Artifact, "id" | "version">): string {
  return derivedId(first.id, `gathered:${first.id}:${first.version}:${agent}:${key}`);
}

/** The task that a complete group is: a batch in the order of arrival, a join in that of its types. */
export function gatheredTask(agent: Agent, key: string, arrived: readonly Artifact[], now: number): Task {
  const types = agent.options.join?.types;
  const place = ({ type }: Artifact) => types?.indexOf(type) ?? 0;
  const artifacts = arrived.toSorted((a, b) => place(a) - place(b)) as [Artifact, ...Artifact[]];
  return {
    id: gatheredId(agent.name, key, artifacts[0]),
    agent: agent.name,
    artifacts,
    key,
    attempt: 1,
    created_at: new Date(now).toISOString(),
  };
}
