import type { Caller } from "../plane.ts";
import type { Artifact } from "./artifact.ts";
import type { DeadLetter, Task } from "./task.ts";

const WITHHELD = "Withheld: it may quote an artifact that you may not read.";

/** An artifact is visible to its org. A private or labelled one is visible to its publisher only, besides its agents. */
export function mayRead({ org, subject }: Caller, { org_id, visibility, produced_by }: Artifact): boolean {
  if (visibility.kind === "public") return true;
  if (org_id !== org) return false;
  return visibility.kind === "org" || produced_by === `user:${subject}`;
}

/** A task of the caller's org, without the payloads that the caller may not read. */
export function taskFor(caller: Caller, task: Task): Task {
  if (mayReadAll(caller, task)) return task;
  const [first, ...rest] = task.artifacts;
  return { ...task, artifacts: [shown(caller, first), ...rest.map((each) => shown(caller, each))] };
}

/** The same for a dead letter. Its failure may quote such a payload, so it is withheld too. */
export function deadLetterFor(caller: Caller, letter: DeadLetter): DeadLetter {
  const { task, failure } = letter;
  if (!task || mayReadAll(caller, task)) return letter;
  const { stack: _, ...rest } = failure;
  return { ...letter, task: taskFor(caller, task), failure: { ...rest, message: WITHHELD } };
}

function mayReadAll(caller: Caller, { artifacts }: Task): boolean {
  return artifacts.every((artifact) => mayRead(caller, artifact));
}

/** The artifact without its payload. */
function shown(caller: Caller, artifact: Artifact): Artifact {
  if (mayRead(caller, artifact)) return artifact;
  const { payload: _, ...rest } = artifact;
  return rest as Artifact;
}
