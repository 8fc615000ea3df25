import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { type Artifact, sameContent, versionKey } from "../model/artifact.ts";
import type { Sweep } from "../waiting/sweep.ts";
import { outboxValues } from "./outbox.ts";

/** An artifact to publish at a later time. */
export interface ScheduledArtifact {
  readonly artifact: Artifact;
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
}

/** Delayed artifacts: rows that the outbox publishes when they are due. */
export interface ScheduledArtifacts {
  /** Adds all or none. An id and version that is already scheduled keeps its time and is a duplicate; other content is refused. */
  add(artifacts: readonly ScheduledArtifact[]): Promise<("scheduled" | "duplicate")[]>;
  /** The scheduled artifact of a correlation that was requested first. */
  first(org: string, correlationId: string): Promise<Artifact | undefined>;
  /** Deletes the scheduled artifacts of a correlation. */
  cancel(org: string, correlationId: string): Promise<void>;
}

/** Opens scheduling. `onAdded` receives the correlation of each added artifact. */
export function openSchedule(
  database: Database,
  context: Pick<Context, "clock">,
  outbox: Pick<Sweep, "wake">,
  onAdded: (org: string, correlationId: string | undefined) => void = () => {},
): ScheduledArtifacts {
  return {
    async add(artifacts) {
      if (artifacts.length === 0) return [];
      const now = context.clock.now();
      const rows = artifacts.map(({ artifact, notBefore }) => {
        const due = new Date(Math.max(now, notBefore));
        return outboxValues({ kind: "artifact", body: artifact }, due, new Date(notBefore));
      });
      const refs = rows.map(([, ref]) => ref as string);
      const fresh = await database.interactive(async (tx) => {
        const added = await insert(tx, rows);
        const old = artifacts.filter((_, i) => !added.has(refs[i]!));
        if (old.length > 0) await refuseOthers(tx, old, refs);
        return added;
      });
      outbox.wake();
      for (const { artifact } of artifacts) onAdded(artifact.org_id, artifact.correlation_id);
      return refs.map((ref) => (fresh.delete(ref) ? "scheduled" : "duplicate"));
    },

    async first(org, correlationId) {
      const [row] = await database.query<{ artifact: Artifact }>({
        name: "board_scheduled_first",
        text: `SELECT body AS artifact FROM runtime.board_outbox
          WHERE not_before IS NOT NULL AND org_id = $1 AND correlation_id = $2 ORDER BY outbox_id LIMIT 1`,
        values: [org, correlationId],
      });
      return row?.artifact;
    },

    async cancel(org, correlationId) {
      await database.query({
        name: "board_scheduled_cancel",
        text: `DELETE FROM runtime.board_outbox
          WHERE not_before IS NOT NULL AND org_id = $1 AND correlation_id = $2`,
        values: [org, correlationId],
      });
    },
  };
}

/** Sorted by the unique key, so that concurrent calls cannot deadlock. */
async function insert(tx: Pick<Database, "query">, rows: readonly unknown[][]): Promise<Set<string>> {
  const columns = rows[0]!.map((_, column) => rows.map((row) => row[column]));
  const added = await tx.query<{ ref: string }>({
    name: "board_schedule_add",
    text: `INSERT INTO runtime.board_outbox (kind, ref, org_id, correlation_id, body, due_at, not_before)
      SELECT kind, ref, org, correlation, body::json, due, not_before
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[])
        AS given (kind, ref, org, correlation, body, due, not_before) ORDER BY ref COLLATE "C"
      ON CONFLICT DO NOTHING RETURNING ref`,
    values: columns,
  });
  return new Set(added.map(({ ref }) => ref));
}

/** Refuses other content under an id and version that is already scheduled. */
async function refuseOthers(
  tx: Pick<Database, "query">,
  artifacts: readonly ScheduledArtifact[],
  refs: readonly string[],
): Promise<void> {
  const waiting = await tx.query<{ artifact: Artifact }>({
    name: "board_schedule_known",
    text: `SELECT body AS artifact FROM runtime.board_outbox
      WHERE ref = ANY ($1::text[]) AND kind = 'artifact' AND org_id = ANY ($2::text[])`,
    values: [refs, artifacts.map(({ artifact }) => artifact.org_id)],
  });
  const known = new Map(waiting.map(({ artifact }) => [versionKey(artifact), artifact]));
  for (const { artifact } of artifacts) {
    const other = known.get(versionKey(artifact));
    if (!other || sameContent(artifact, other)) continue;
    const message =
      `The artifact ${artifact.id} is already scheduled in version ${artifact.version} with other content. ` +
      "Publish it with a higher version, or with another id.";
    throw new KhalaError("artifact_conflict", message);
  }
}
