import type { Database } from "../../database/database.ts";

/** A subject of an org, and whether to count only. */
export interface ArtifactErasure {
  readonly org: string;
  readonly subject: string;
  /** Artifacts up to this one are done. */
  readonly after: bigint;
  readonly dryRun: boolean;
}

/** The data a step found and, except in a dry run, erased. */
export interface ErasedArtifacts {
  readonly artifacts: number;
  readonly dead_letters: number;
  /** Where to continue; undefined when nothing is left. */
  readonly next: bigint | undefined;
}

/** Artifacts, or dead letters, per step. */
const ROWS = 200;

interface Row {
  readonly id: string;
  readonly version: number;
  readonly seq: bigint;
  readonly correlationId: string | null;
  /** The body of an artifact that may have to be erased. */
  readonly body: string | null;
  /** The subject published an artifact of its correlation. */
  readonly follows: boolean;
}

interface ArtifactBody {
  readonly produced_by?: string;
  readonly tags?: unknown;
  readonly payload?: { readonly erased?: unknown } | null;
}

/**
 * Redacts the artifacts of a subject in a stretch, and what agents made of them: the artifacts of their correlations that no
 * other user published. Deletes the dead letters of these. An artifact that is redacted keeps its id and type, so that open
 * tasks can end; it keeps the subject's name until `forgetPublisher`, because that tells which correlations are meant.
 */
export async function eraseArtifacts(
  database: Pick<Database, "interactive">,
  { org, subject, after, dryRun }: ArtifactErasure,
): Promise<ErasedArtifacts> {
  return database.interactive(async (tx) => {
    const rows = await tx.query<Row>({
      name: "erase_find_artifacts",
      text: `WITH stretch AS MATERIALIZED (
          SELECT id, version, seq, correlation_id, body FROM runtime.board_artifacts
          WHERE org_id = $1 AND seq > $3 ORDER BY seq LIMIT $4
        ), followed AS MATERIALIZED (
          SELECT c.correlation_id FROM (SELECT DISTINCT correlation_id FROM stretch) c WHERE EXISTS (
            SELECT FROM runtime.board_artifacts o
            WHERE o.org_id = $1 AND o.correlation_id = c.correlation_id AND position($2 IN o.body) > 0)
        )
        SELECT s.id, s.version, s.seq, s.correlation_id AS "correlationId", f.correlation_id IS NOT NULL AS follows,
          CASE WHEN f.correlation_id IS NOT NULL OR position($2 IN s.body) > 0 THEN s.body END AS body
        FROM stretch s LEFT JOIN followed f USING (correlation_id) ORDER BY s.seq`,
      values: [org, publishedBy(subject), after, ROWS],
    });
    const correlations = rows.flatMap(({ follows, correlationId }) => (follows && correlationId) || []);
    const letters = await tx.query({
      name: dryRun ? "erase_count_followers" : "erase_followers",
      text: `${dryRun ? "SELECT 1" : "DELETE"} FROM runtime.board_dead_letters l
        WHERE l.org_id = $1 AND l.correlation_id = ANY($2::text[]) AND position('"produced_by":"user:' IN l.body) = 0
          -- The others were part of an earlier step.
          AND NOT EXISTS (SELECT FROM runtime.board_artifacts a
            WHERE a.org_id = $1 AND a.correlation_id = l.correlation_id AND a.seq <= $3) ${dryRun ? "" : "RETURNING 1"}`,
      values: [org, [...new Set(correlations)], after],
    });
    const found = rows.flatMap(({ id, version, body }) => {
      const redacted = body === null ? undefined : redact(body, subject);
      return redacted === undefined ? [] : [{ id, version, redacted }];
    });
    if (!dryRun && found.length > 0)
      await tx.query({
        name: "erase_artifacts",
        text: `UPDATE runtime.board_artifacts a SET body = i.body
          FROM unnest($2::uuid[], $3::int[], $4::text[]) AS i(id, version, body)
          WHERE a.org_id = $1 AND a.id = i.id AND a.version = i.version`,
        values: [
          org,
          found.map(({ id }) => id),
          found.map(({ version }) => version),
          found.map(({ redacted }) => redacted),
        ],
      });
    const next = rows.length === ROWS ? rows.at(-1)!.seq : undefined;
    return { artifacts: found.length, dead_letters: letters.length, next };
  });
}

/** Deletes, or counts, a batch of the dead letters of artifacts that the subject published. */
export async function eraseDeadLetters(
  database: Pick<Database, "query">,
  { org, subject, dryRun }: Omit<ArtifactErasure, "after">,
): Promise<{ readonly dead_letters: number; readonly more: boolean }> {
  const values = [org, publishedBy(subject)];
  if (dryRun) {
    const [row] = await database.query<{ n: number }>({
      name: "erase_count_letters",
      text: `SELECT count(*)::int AS n FROM runtime.board_dead_letters WHERE org_id = $1 AND position($2 IN body) > 0`,
      values,
    });
    return { dead_letters: row!.n, more: false };
  }
  const rows = await database.query({
    name: "erase_letters",
    text: `DELETE FROM runtime.board_dead_letters WHERE (agent, org_id, id) IN (
        SELECT agent, org_id, id FROM runtime.board_dead_letters
        WHERE org_id = $1 AND position($2 IN body) > 0 LIMIT $3) RETURNING 1`,
    values: [...values, ROWS],
  });
  return { dead_letters: rows.length, more: rows.length === ROWS };
}

/** Removes the subject's name from a stretch of the artifacts, once all of them are redacted. */
export async function forgetPublisher(
  database: Pick<Database, "query">,
  { org, subject, after, dryRun }: ArtifactErasure,
): Promise<bigint | undefined> {
  if (dryRun) return undefined;
  const [row] = await database.query<{ next: bigint | null }>({
    name: "erase_publisher",
    text: `WITH stretch AS MATERIALIZED (
        SELECT id, version, seq, body FROM runtime.board_artifacts
        WHERE org_id = $1 AND seq > $3 ORDER BY seq LIMIT $4
      ), renamed AS (
        UPDATE runtime.board_artifacts a SET body = replace(s.body, $2, '"produced_by":"user:"') FROM stretch s
        WHERE a.org_id = $1 AND a.id = s.id AND a.version = s.version AND position($2 IN s.body) > 0
      )
      SELECT CASE WHEN count(*) = $4 THEN max(seq) END AS next FROM stretch`,
    values: [org, publishedBy(subject), after, ROWS],
  });
  return row?.next ?? undefined;
}

/** As it is in the text of a body, which JSON.stringify made of the artifact. */
const publishedBy = (subject: string): string => `"produced_by":${JSON.stringify(`user:${subject}`)}`;

/** The body without content; undefined when that is done, or another user published it. */
function redact(body: string, subject: string): string | undefined {
  const { tags: _, ...artifact } = JSON.parse(body) as ArtifactBody;
  const { produced_by: by = "", payload } = artifact;
  if (payload?.erased === true || (by.startsWith("user:") && by !== `user:${subject}`)) return undefined;
  return JSON.stringify({ ...artifact, payload: { erased: true } });
}
