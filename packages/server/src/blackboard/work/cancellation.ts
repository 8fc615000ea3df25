import { FatalError } from "../model/errors.ts";
import type { Settlement, Task } from "../model/task.ts";
import { createdAt } from "../model/task.ts";
import type { Controls } from "../waiting/controls.ts";

/** The reason why a task was aborted or not started: a person cancelled it. */
export class Cancelled extends FatalError {
  override readonly name = "Cancelled";

  constructor(message: string) {
    super(message);
    // The stack of this error says nothing about the task.
    this.stack = "";
  }
}

type Known = Pick<Controls, "cancelled" | "agentCancelled">;

/** The reason if a task was cancelled. */
export function cancellationOf(controls: Known, task: Task): Cancelled | undefined {
  const [{ org_id: org, correlation_id: correlation }] = task.artifacts;
  if (controls.cancelled(org, correlation))
    return new Cancelled(`The correlation "${correlation}" was cancelled. Resume it to run this.`);
  const until = controls.agentCancelled(task.agent);
  if (until === undefined || createdAt(task) > until) return undefined;
  return new Cancelled(
    `The queued tasks of agent "${task.agent}" were cancelled. Replay this one to run it.`,
  );
}

/** A cancelled task becomes a dead letter, so that a person can replay it. */
export function cancelledSettlement({ name, message }: Cancelled): Settlement {
  return { kind: "dead", failure: { class: name, message, kind: "fatal" } };
}
