import type { Database } from "../../database/database.ts";
import type { Artifact } from "../model/artifact.ts";

/** What is wanted of a correlation. */
export interface CorrelationQuery {
  readonly correlationId: string;
  readonly type?: string;
  readonly org: string;
  readonly limit: number;
}

/** The artifacts of a correlation, newest first. They are few, so the window does not matter. */
export async function correlationArtifacts(
  database: Database,
  { correlationId, type, org, limit }: CorrelationQuery,
): Promise<Artifact[]> {
  const rows = await database.query<{ body: string }>({
    name: "board_correlation_artifacts",
    text: `SELECT a.body FROM runtime.board_artifacts a
      WHERE a.correlation_id = $1 AND a.org_id = $2 AND ($3::text IS NULL OR a.type = $3)
      ORDER BY a.seq DESC LIMIT $4`,
    values: [correlationId, org, type ?? null, limit],
  });
  return rows.map(({ body }) => JSON.parse(body) as Artifact);
}
