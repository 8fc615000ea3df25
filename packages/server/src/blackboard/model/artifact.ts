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

/** An artifact as stored: with every field that the board adds. */
export type Artifact = Readonly<ArtifactJson & Required<Pick<ArtifactJson, Given>>>;

/** An artifact as a publisher or an agent submits it. */
export type ArtifactDraft = Readonly<ArtifactDraftJson>;

/** The unique key of one version of an artifact. It begins with the id, so that the keys of new artifacts ascend. */
export function versionKey({ org_id, id, version }: Pick<Artifact, "org_id" | "id" | "version">): string {
  return `${id.toLowerCase()} ${version} ${org_id}`;
}

/** Whether the keys are strictly ascending, as those of new artifacts are. Then they are unique without a set. */
export function areAscending(keys: readonly string[]): boolean {
  for (let i = 1; i < keys.length; i++) if (keys[i - 1]! >= keys[i]!) return false;
  return true;
}

/** Whether two artifacts are the same submission. Only their time and trace may differ. */
export function sameContent(one: Artifact, other: Artifact): boolean {
  return isDeepStrictEqual(content(one), content(other));
}

function content(artifact: Artifact): unknown {
  const { created_at: _, traceparent: __, ...rest } = JSON.parse(JSON.stringify(artifact)) as Artifact;
  return { ...rest, id: rest.id.toLowerCase() };
}

/** The error for different content under an existing id and version. */
export function conflict({ id, version }: Artifact): KhalaError {
  const message =
    `The artifact ${id} already exists in version ${version} with other content. ` +
    "Publish it with a higher version, or with another id.";
  return new KhalaError("artifact_conflict", message);
}
