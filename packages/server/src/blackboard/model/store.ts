import type { BlackboardPlane, Caller } from "../plane.ts";
import type { Artifact, ArtifactDraft } from "./artifact.ts";

/** The board as its users know it from Flock: four calls, on either engine. */
export interface BlackboardStore {
  /** Answers the artifact's id once it is durable. */
  publish(artifact: ArtifactDraft): Promise<string>;
  /** The newest version. */
  get(artifactId: string): Promise<Artifact | undefined>;
  /** The recent window, newest first: at most so many as FLOCK_INDEX_WINDOW keeps, not everything that ever was. */
  list(): Promise<Artifact[]>;
  /** Those of a type within that window. */
  list_by_type(typeName: string): Promise<Artifact[]>;
}

/** The board in the hands of one caller. */
export function blackboardStore(
  plane: Pick<BlackboardPlane, "publish" | "get" | "recent">,
  caller: Caller,
  options: { readonly limit?: number } = {},
): BlackboardStore {
  // The window itself is the limit.
  const { limit = Number.POSITIVE_INFINITY } = options;
  return {
    async publish(artifact) {
      const [published] = await plane.publish(caller, [artifact]);
      return published!.id!;
    },
    get: (artifactId) => plane.get(caller, artifactId),
    list: () => plane.recent(caller, { limit }),
    list_by_type: (typeName) => plane.recent(caller, { type: typeName, limit }),
  };
}
