import type { Column } from "./columns.ts";

/** What a click on a head sorts by: ascending, descending, then in the order of the list again. */
export function nextSort(head: string, sort: string | undefined): string | undefined {
  return sort === head ? `-${head}` : sort === `-${head}` ? undefined : head;
}

/** For screen readers; undefined for a head that rows are not sorted by. */
export function sortState(head: string, sort: string | undefined): "ascending" | "descending" | undefined {
  return sort === head ? "ascending" : sort === `-${head}` ? "descending" : undefined;
}

/** The rows by a column; the same array when no such column can be sorted by. Rows without a value come last. */
export function sortRows<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  sort: string | undefined,
): readonly Row[] {
  const isDescending = sort?.startsWith("-") === true;
  const by = columns.find(({ head }) => head === (isDescending ? sort?.slice(1) : sort))?.sortBy;
  if (!by) return rows;
  const direction = isDescending ? -1 : 1;
  const order = new Intl.Collator("en", { numeric: true });
  return rows
    .map((row) => ({ row, value: by(row) }))
    .sort((a, b) => {
      if (a.value === undefined || b.value === undefined)
        return Number(a.value === undefined) - Number(b.value === undefined);
      if (typeof a.value === "number" && typeof b.value === "number") return direction * (a.value - b.value);
      return direction * order.compare(String(a.value), String(b.value));
    })
    .map(({ row }) => row);
}
