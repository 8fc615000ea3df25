import type { Database, Statement } from "../../packages/server/src/database/database.ts";

interface Plan {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Index Cond"?: string;
  readonly Plans?: readonly Plan[];
}

const nodesOf = (plan: Plan): Plan[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];

/** What a statement reads, as `index: condition`, or `table: all` where it reads a table without an index. */
export async function readsOf(database: Database, { text, values = [] }: Statement): Promise<string[]> {
  const [row] = await database.query<{ "QUERY PLAN": { Plan: Plan }[] }>({
    text: `EXPLAIN (FORMAT JSON) ${text}`,
    values,
  });
  return nodesOf(row!["QUERY PLAN"][0]!.Plan)
    .filter((node) => /^(Seq|Index|Index Only|Bitmap Index) Scan$/.test(node["Node Type"]))
    .map((node) => `${node["Index Name"] ?? node["Relation Name"]}: ${node["Index Cond"] ?? "all"}`);
}
