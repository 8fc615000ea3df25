import type { ReactNode } from "react";

/** Between columns, and at both ends. */
const GAP = 16;
/** The column of checkboxes. */
const CHECKBOX = 36;

export interface Column<Row> {
  readonly head: string;
  readonly cell: (row: Row) => ReactNode;
  /** Pixels, or a grid track such as "1fr" or "minmax(160px, 2fr)"; "1fr" unless set. */
  readonly width?: number | string;
  /** What rows are sorted by when the head is clicked; without it they cannot be. */
  readonly sortBy?: (row: Row) => string | number | undefined;
  readonly align?: "start" | "end";
  /** Left out where the table is too narrow for all columns; the last one first. */
  readonly wideOnly?: boolean;
}

/** A column of numbers: aligned to the right, and left out in narrow tables. */
export function numbers<Row>(head: string, width: number, cell: (row: Row) => ReactNode): Column<Row> {
  return { head, width, cell, align: "end", wideOnly: true };
}

/** What a column needs at least: its pixels, the first number of its track, or enough for a word. */
function minWidthOf({ width = "1fr" }: Column<never>): number {
  return typeof width === "number" ? width : Number(/(\d+)px/.exec(width)?.[1] ?? 120);
}

/** The columns that fit into this width: `wideOnly` ones are dropped, the last one first. */
export function fitColumns<Row>(
  columns: readonly Column<Row>[],
  width: number,
  withCheckbox: boolean,
): readonly Column<Row>[] {
  let shown = columns;
  while (width > 0 && gridOf(shown, withCheckbox).minWidth > width) {
    const drop = shown.findLast((column) => column.wideOnly);
    if (!drop) break;
    shown = shown.filter((column) => column !== drop);
  }
  return shown;
}

/** The CSS grid of a row. */
export function gridOf(columns: readonly Column<never>[], withCheckbox: boolean) {
  const list = columns.map((column) => {
    const { width = "1fr" } = column;
    if (typeof width === "number") return `${width}px`;
    return width.includes("(") ? width : `minmax(${minWidthOf(column)}px, ${width})`;
  });
  const minWidth = columns.reduce(
    (sum, column) => sum + minWidthOf(column) + GAP,
    withCheckbox ? CHECKBOX + 2 * GAP : GAP,
  );
  return { gridTemplateColumns: [...(withCheckbox ? [`${CHECKBOX}px`] : []), ...list].join(" "), minWidth };
}
