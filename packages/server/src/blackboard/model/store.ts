import type { BlackboardPlane, Caller } from "../plane.ts";
import type { Artifact, ArtifactDraft } from "./artifact.ts";

/** The board as Flock's users know it: four calls, on either backend. */
export interface BlackboardStore {
  /** Resolves with the artifact's id once it is durable. */
  publish(artifact: ArtifactDraft): Promise<string>;
  /** The newest version. */
  get(artifactId: string): Promise<Artifact | undefined>;
  /** The recent window, newest first: at most FLOCK_INDEX_WINDOW artifacts, not all that were ever published. */
  list(): Promise<Artifact[]>;
  /** The artifacts of a type within that window. */
  list_by_type(typeName: string): Promise<Artifact[]>;
}

/** The board on behalf of one caller. */
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
