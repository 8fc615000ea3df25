import type { Artifact } from "../model/artifact.ts";

/**
 * How the rows of tasks and dead letters name a correlation: with its org, since another may use the same name. A name has
 * no line break. Rows of servers before this have the name alone, and count for whoever uses it.
 */
export function correlationColumn({
  org_id,
  correlation_id,
}: Pick<Artifact, "org_id" | "correlation_id">): string | null {
  return correlation_id ? `${org_id}\n${correlation_id}` : null;
}
