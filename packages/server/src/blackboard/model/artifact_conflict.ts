import { isDeepStrictEqual } from "node:util";
import { KhalaError } from "@khala/contracts";
import type { Artifact } from "./artifact.ts";

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
