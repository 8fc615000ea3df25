import type { Model } from "../model.ts";

/** The SQL that a statement needs for the parts of a model; empty for a model without parts. */
export interface PartsSql {
  /** Columns of an incoming row `i` whose document is stored as `c`: its parts, and those that it was in before. */
  readonly columns: string;
  /** Makes the parts of a payload, `n.parts`. */
  readonly join: string;
  /** Columns of the journal, and their values. */
  readonly names: string;
  readonly values: string;
  /** A CTE that stores which parts the rows of `changes` are for. */
  readonly insert: string;
  /** The new parts_floor when the watermark rises by `count`. */
  readonly floor: string;
}

/** Makes the SQL for parts. `payload`, `count` and `where` are those of the statement. */
export function partsSql(
  { by }: Model,
  { payload, count, where }: { readonly payload: string; readonly count: string; readonly where: string },
): PartsSql {
  // If another version of the model has parts, these rows are in unknown ones.
  const unknown = `next_watermark + ${count}`;
  if (by.length === 0) return { columns: "", join: "", names: "", values: "", insert: "", floor: unknown };
  // Field names are safe in a text: `defineModel` checks them.
  const declared = `ARRAY[${by.map((field) => `'${field}'`).join(", ")}]`;
  const parts = (valueIn: (field: string) => string) =>
    `array_remove(ARRAY[${by.map((field) => `'${field}=' || ${valueIn(field)}`).join(", ")}], NULL)`;
  return {
    columns: `, n.parts,
    coalesce(lag(n.parts) OVER (PARTITION BY i.org_id, i.doc_key ORDER BY i.ord), ${parts((field) => `c."f_${field}"`)}) AS before_parts`,
    join: `CROSS JOIN LATERAL (
    SELECT CASE WHEN (SELECT s.parts FROM runtime.sync_topic_sequences s WHERE s.topic = $1) = ${declared}
      THEN ${parts((field) => `runtime.document_field(${payload}, '${field}')`)} END AS parts
  ) n`,
    names: ", parts, left_parts",
    values: ", parts, ARRAY(SELECT unnest(before_parts) EXCEPT SELECT unnest(parts))",
    insert: `, of_parts AS (
  INSERT INTO runtime.sync_stream_parts (topic, org_id, part, watermark)
  SELECT DISTINCT $1, org_id, unnest(before_parts || parts), watermark FROM changes ${where}
)`,
    floor: `CASE WHEN parts = ${declared} THEN parts_floor ELSE ${unknown} END`,
  };
}
