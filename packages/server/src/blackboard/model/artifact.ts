import { isDeepStrictEqual } from "node:util";
import { KhalaError } from "@khala/contracts";
import type { ArtifactDraftJson, ArtifactJson } from "@khala/contracts/blackboard/v1";

type Given =
  | "id"
  | "type"
  | "payload"
  | "tags"
  | "produced_by"
  | "visibility"
  | "version"
  | "created_at"
  | "org_id"
  | "depth";

/** An artifact as the board keeps it: everything that the board adds is there. */
export type Artifact = Readonly<ArtifactJson & Required<Pick<ArtifactJson, Given>>>;

/** What a publisher or an agent says of an artifact. */
export type ArtifactDraft = Readonly<ArtifactDraftJson>;

/** What tells one version of an artifact from all others. */
export function versionKey({ id, version }: Pick<Artifact, "id" | "version">): string {
  // Most are first versions: for them there is nothing to put together.
  return version === 1 ? id.toLowerCase() : `${id.toLowerCase()} ${version}`;
}

/** Whether each of these keys comes after the one before, as those of new artifacts do: then all are different. */
export function areAscending(keys: readonly string[]): boolean {
  for (let i = 1; i < keys.length; i++) if (keys[i - 1]! >= keys[i]!) return false;
  return true;
}

/** Whether somebody said the same twice: only the time and the trace of the saying may differ. */
export function sameContent(one: Artifact, other: Artifact): boolean {
  return isDeepStrictEqual(content(one), content(other));
}

function content(artifact: Artifact): unknown {
  const { created_at: _, traceparent: __, ...rest } = JSON.parse(JSON.stringify(artifact)) as Artifact;
  return { ...rest, id: rest.id.toLowerCase() };
}

/** The error for other content under a known id and version. */
export function conflict({ id, version }: Artifact): KhalaError {
  const message =
    `The artifact ${id} is on the board in version ${version} with other content. ` +
    "Publish it with a higher version, or with another id.";
  return new KhalaError("artifact_conflict", message);
}
