import type { ReactNode } from "react";

/** Between columns, and at both ends. */
const GAP = 16;
/** The column of boxes. */
const CHOICE = 36;

export interface Column<Row> {
  readonly id: string;
  readonly head: string;
  readonly cell: (row: Row) => ReactNode;
  /** Pixels, or a grid track such as "1fr" or "minmax(160px, 2fr)"; "1fr" unless set. */
  readonly width?: number | string;
  readonly align?: "start" | "end";
  /** Left out where the table is too narrow for all columns; the last one first. */
  readonly wideOnly?: boolean;
}

/** What a column needs at least: its pixels, the first number of its track, or enough for a word. */
function leastWidth({ width = "1fr" }: Column<never>): number {
  return typeof width === "number" ? width : Number(/(\d+)px/.exec(width)?.[1] ?? 120);
}

/** The columns that fit, without those that are for wide tables alone, the last one first. */
export function fitting<Row>(
  columns: readonly Column<Row>[],
  width: number,
  withChoice: boolean,
): readonly Column<Row>[] {
  const needed = (list: readonly Column<Row>[]) => tracks(list, withChoice).minWidth;
  let shown = columns;
  while (width > 0 && needed(shown) > width) {
    const drop = shown.findLast((column) => column.wideOnly);
    if (!drop) break;
    shown = shown.filter((column) => column !== drop);
  }
  return shown;
}

/** The grid of a row. */
export function tracks(columns: readonly Column<never>[], withChoice: boolean) {
  const list = columns.map((column) => {
    const { width = "1fr" } = column;
    if (typeof width === "number") return `${width}px`;
    return width.includes("(") ? width : `minmax(${leastWidth(column)}px, ${width})`;
  });
  const minWidth = columns.reduce(
    (sum, column) => sum + leastWidth(column) + GAP,
    withChoice ? CHOICE + 2 * GAP : GAP,
  );
  return { gridTemplateColumns: [...(withChoice ? [`${CHOICE}px`] : []), ...list].join(" "), minWidth };
}
