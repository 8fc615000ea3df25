import type { Resource } from "./access.ts";

/** An artifact, as far as the decision about outputs needs it. */
export interface ArtifactResource extends Resource {
  readonly id: string;
  readonly version: number;
  /** Such as "agent:writer". */
  readonly producer: string;
}

/**
 * Decides whether the output of an agent may be a new version of an artifact. A new version hides the one before it, so the
 * agent must have made that one, have been given it, or work for people who all may read it.
 */
export function mayOutputReplace(
  producer: string,
  inputs: readonly ArtifactResource[],
  existing: ArtifactResource,
): boolean {
  if (inputs.some(({ org }) => org !== existing.org)) return false;
  if (existing.producer === producer || !existing.audience) return true;
  // The input may be an older version, from before the artifact became private.
  if (inputs.some(({ id, version }) => id === existing.id && version >= existing.version)) return true;
  const audience = commonAudience(inputs);
  // Nobody sees the private input of another agent, which gives no right to what others made.
  if (!audience || audience.length === 0) return false;
  return audience.every((subject) => existing.audience?.includes(subject));
}

/** The subjects that see all of the resources; null for the whole org. */
function commonAudience(resources: readonly Resource[]): readonly string[] | null {
  return resources.reduce<readonly string[] | null>((common, { audience = null }) => {
    if (!common || !audience) return common ?? audience;
    return common.filter((subject) => audience.includes(subject));
  }, null);
}
