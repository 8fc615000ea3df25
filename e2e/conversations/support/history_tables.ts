import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { Database } from "../../../packages/server/src/database/database.ts";

interface Row extends TranscriptMessageJson {
  readonly message_id: string;
  readonly parent_id: string;
}

/** The active branch as the table has it, read without the server's code. */
export async function activeBranch(database: Database, convId: string): Promise<TranscriptMessageJson[]> {
  // One statement: a run may be under way.
  const found = await database.query<Row & { readonly leaf: string | null }>({
    text: `SELECT c.leaf_id AS leaf, m.message_id, coalesce(m.parent_id, '') AS parent_id, m.role,
        coalesce(m.author, '') AS author, coalesce(m.run_id, '') AS run_id, m.parts, m.status,
        to_char(m.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') AS created_at
      FROM runtime.conversations c JOIN runtime.messages m ON m.org_id = c.org_id AND m.conv_id = c.conv_id
      WHERE c.conv_id = $1 ORDER BY m.inserted_at, m.message_id`,
    values: [convId],
  });
  const leaf = found[0]?.leaf;
  const rows = found.map(({ leaf: _, ...row }) => row);
  const branch: TranscriptMessageJson[] = [];
  const after = (id: string) =>
    rows.filter(({ parent_id }) => parent_id === id).map(({ message_id }) => message_id);
  for (let id = leaf ?? ""; id !== ""; ) {
    const row = rows.find(({ message_id }) => message_id === id)!;
    const siblings = after(row.parent_id);
    const replies = branch.length === 0 ? after(id) : [];
    branch.unshift(
      sorted({ ...row, ...(siblings.length > 1 && { siblings }), ...(replies.length > 0 && { replies }) }),
    );
    id = row.parent_id;
  }
  return branch;
}

/** The tool calls in messages that have an output. */
export function recordedCalls(messages: readonly TranscriptMessageJson[]): string[] {
  return messages.flatMap(({ parts = [] }) =>
    parts.flatMap(({ tool }) => (tool?.output === undefined ? [] : (tool.tool_call_id ?? []))),
  );
}

/** The same with the fields of objects in order, and without those that are empty, so that the texts of equals are equal. */
export function sorted<T>(value: T): T {
  if (Array.isArray(value)) return value.map(sorted) as T;
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).filter(([, of]) => of !== undefined && of !== "");
  return Object.fromEntries(
    fields.sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, of]) => [key, sorted(of)]),
  ) as T;
}
