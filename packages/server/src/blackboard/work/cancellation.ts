import { FatalError } from "../model/errors.ts";
import type { Settlement, Task } from "../model/task.ts";
import { madeAt } from "../model/task.ts";
import type { Controls } from "../waiting/controls.ts";

/** Why work was told to stop, or was not begun: a person does not want it any more. */
export class Cancelled extends FatalError {
  override readonly name = "Cancelled";

  constructor(message: string) {
    super(message);
    // Where it was made says nothing about the task.
    this.stack = "";
  }
}

type Known = Pick<Controls, "cancelled" | "agentCancelled">;

/** Why a task is not wanted any more, if it is not. */
export function cancellationOf(controls: Known, task: Task): Cancelled | undefined {
  const [{ org_id: org, correlation_id: correlation }] = task.artifacts;
  if (controls.cancelled(org, correlation))
    return new Cancelled(`The correlation "${correlation}" was cancelled. Resume it to run this.`);
  const until = controls.agentCancelled(task.agent);
  if (until === undefined || madeAt(task) > until) return undefined;
  return new Cancelled(`What waited for agent "${task.agent}" was cancelled. Replay this to run it.`);
}

/** Parked with its error, so that a person can have it run after all. */
export function cancelled({ name, message }: Cancelled): Settlement {
  return { kind: "dead", failure: { class: name, message, kind: "fatal" } };
}
