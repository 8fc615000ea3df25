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
