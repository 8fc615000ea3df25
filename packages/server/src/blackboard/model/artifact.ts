import { isDeepStrictEqual } from "node:util";
import { KhalaError } from "@khala/contracts";
import type { ArtifactDraftJson, ArtifactJson } from "@khala/contracts/blackboard/v1";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Schemas, Stored } from "../../kit/standard_schema.ts";

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

/** An artifact of these types, whose payload is as its schema has it; types without a schema have any payload. */
export type ArtifactOf<S extends Schemas, Type extends string> = string extends keyof S
  ? Artifact
  : Type extends keyof S
    ? Omit<Artifact, "type" | "payload"> & {
        readonly type: Type;
        readonly payload: Stored<StandardSchemaV1.InferOutput<S[Type]>>;
      }
    : Omit<Artifact, "type"> & { readonly type: Type };

/** A draft of one of the types that have a schema; without schemas, any draft. */
export type DraftOf<S extends Schemas> = string extends keyof S
  ? ArtifactDraft
  : {
      [Type in keyof S & string]: Omit<ArtifactDraft, "type" | "payload"> & {
        readonly type: Type;
        readonly payload: StandardSchemaV1.InferInput<S[Type]>;
      };
    }[keyof S & string];

/** A draft of one of these types; of a type without a schema, with any payload. */
export type DraftOfType<S extends Schemas, Type extends string> = string extends keyof S
  ? ArtifactDraft
  : Type extends keyof S & string
    ? DraftOf<Pick<S, Type>>
    : Omit<ArtifactDraft, "type"> & { readonly type: Type };

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
