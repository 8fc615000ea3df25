import { memo } from "react";
import { partWords } from "../strings/parts.ts";
import { classNames } from "./class_names.ts";
import type { Column } from "./table_columns.ts";

export interface TableRowProps {
  readonly id: string;
  readonly row: unknown;
  readonly rowId: string;
  readonly index: number;
  readonly top: number;
  readonly columns: readonly Column<unknown>[];
  readonly style: { readonly gridTemplateColumns: string; readonly minWidth: number };
  readonly isSelected: boolean;
  readonly isActive: boolean;
  readonly isChosen: boolean | undefined;
  readonly onSelect: ((key: string) => void) | undefined;
  readonly onActive: (key: string) => void;
  readonly onChoose: ((key: string) => void) | undefined;
}

/** Handlers are left out: they say the same of every row. */
function isSameRow(a: TableRowProps, b: TableRowProps): boolean {
  return (
    a.row === b.row &&
    a.rowId === b.rowId &&
    a.top === b.top &&
    a.columns === b.columns &&
    a.style === b.style &&
    a.isSelected === b.isSelected &&
    a.isActive === b.isActive &&
    a.isChosen === b.isChosen &&
    (a.isChosen === undefined || a.onChoose === b.onChoose) &&
    a.onSelect === b.onSelect
  );
}

/** A row that is drawn again only when something of it changed. */
export const TableRow = memo(function TableRow(props: TableRowProps) {
  const { row, rowId, onSelect, onChoose } = props;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: keys are the grid's, which has the focus.
    <div
      id={props.id}
      role="row"
      tabIndex={-1}
      aria-rowindex={props.index + 2}
      aria-selected={onSelect ? props.isSelected : undefined}
      className={classNames(
        "table-row",
        onSelect && "table-row-selectable",
        props.isSelected && "table-row-selected",
        props.isActive && "table-row-active",
      )}
      style={{ ...props.style, transform: `translateY(${props.top}px)` }}
      onClick={(event) => {
        if (event.target instanceof Element && event.target.closest("a, button, input")) return;
        props.onActive(rowId);
        onSelect?.(rowId);
      }}
    >
      {onChoose && (
        <div role="gridcell" tabIndex={-1} className="cell cell-choose">
          <input
            type="checkbox"
            aria-label={partWords.chooseRow(rowId)}
            checked={props.isChosen ?? false}
            onChange={() => onChoose(rowId)}
          />
        </div>
      )}
      {props.columns.map((column) => (
        <div
          key={column.id}
          role="gridcell"
          tabIndex={-1}
          className={classNames("cell", column.align === "end" && "cell-end")}
        >
          {column.cell(row)}
        </div>
      ))}
    </div>
  );
}, isSameRow);
