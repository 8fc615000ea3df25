import { may } from "../../access/access.ts";
import type { ArtifactResource } from "../../access/outputs.ts";
import type { Caller } from "../plane.ts";
import type { Artifact } from "./artifact.ts";
import type { DeadLetter, Task } from "./task.ts";

const WITHHELD = "Withheld: it may quote an artifact that you may not read.";

const PUBLISHER = "user:";

/** The artifact as a resource: a private or labelled one is for its publisher only, besides its agents. */
export function artifactResource(
  artifact: Artifact,
): ArtifactResource & { readonly audience: readonly string[] | null } {
  const { org_id: org, id, version, visibility, produced_by } = artifact;
  const isOpen = visibility.kind === "public" || visibility.kind === "org";
  const publisher = produced_by.startsWith(PUBLISHER) ? [produced_by.slice(PUBLISHER.length)] : [];
  const audience = isOpen ? null : publisher;
  return { org, id, version, producer: produced_by, isPublic: visibility.kind === "public", audience };
}

/** Whether the caller may see the artifact. */
export function mayRead(caller: Caller, artifact: Artifact): boolean {
  return may(caller, "artifact.read", artifactResource(artifact));
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
