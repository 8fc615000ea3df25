import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import { Icon } from "../controls/icons.tsx";
import { classNames } from "../format/class_names.ts";
import { countText } from "../format/numbers.ts";
import { useNarrow, useWidth } from "../hooks.ts";
import { type Column, fitColumns, gridOf } from "./columns.ts";
import { useHeldRows } from "./held_rows.ts";
import { nextSort, sortState } from "./sort.ts";
import "./table.css";

const ROW = 32;
/** The same on a phone. */
const TOUCH_ROW = 44;

export interface TableProps<Row> {
  /** For screen readers. */
  readonly label: string;
  /** Keep it the same array between renders (module constant or useMemo): rows are remembered by it. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  /** Unique among the rows. Keep it the same function between renders. */
  readonly rowKey: (row: Row) => string;
  readonly selected?: string | undefined;
  /** Without it rows cannot be selected. Called with undefined when the selection ends. */
  readonly onSelect?: (key: string | undefined) => void;
  /** Checkboxes for several rows. */
  readonly checked?: ReadonlySet<string>;
  readonly onCheck?: (keys: ReadonlySet<string>) => void;
  /** Shown in place of the rows when there are none. */
  readonly empty?: ReactNode;
  /** Called when the end comes into view: fetch the next page. */
  readonly onEnd?: () => void;
  /** The head that rows are sorted by, with a minus for descending order; the caller sorts them. */
  readonly sort?: string | undefined;
  readonly onSort?: (sort: string | undefined) => void;
  /** New rows wait behind a button while a person reads: scrolled down, or with a row selected or checked. On unless false. */
  readonly hold?: boolean;
}

/** A virtual table with keyboard navigation. It fills its container. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, rowKey, selected, onSelect, checked, onCheck, hold = true, onEnd } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const withCheckbox = onCheck !== undefined;
  const columns = useMemo(
    () => fitColumns(props.columns, width, withCheckbox),
    [props.columns, width, withCheckbox],
  );
  const [scrolled, setScrolled] = useState(false);
  const [released, setReleased] = useState(0);
  const [active, setActive] = useState<string>();
  const id = useId();

  // Showing the new rows once means: not reading, for one render.
  const isReleased = useRef(released);
  const reading =
    hold &&
    (scrolled || selected !== undefined || (checked?.size ?? 0) > 0) &&
    isReleased.current === released;
  const { rows, waiting } = useHeldRows(props.rows, rowKey, reading);
  useEffect(() => {
    isReleased.current = released;
  }, [released]);

  const rowHeight = useNarrow() ? TOUCH_ROW : ROW;
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 4,
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: measured again when the height of rows changed
  useEffect(() => virtual.measure(), [rowHeight]);
  const items = virtual.getVirtualItems();
  const lastIndex = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (rows.length > 0 && lastIndex >= rows.length - 1) onEnd?.();
  }, [lastIndex, rows.length, onEnd]);

  const template = useMemo(() => gridOf(columns, withCheckbox), [columns, withCheckbox]);
  const select = useMemo(() => (onSelect ? (key: string) => onSelect(key) : undefined), [onSelect]);
  // Where the row was last found: searching a long list in every render would be slow.
  const lastSeen = useRef(0);
  const indexOf = (key: string | undefined) => {
    if (key === undefined) return -1;
    const there = rows[lastSeen.current];
    if (there === undefined || rowKey(there) !== key)
      lastSeen.current = rows.findIndex((row) => rowKey(row) === key);
    return lastSeen.current;
  };

  const moveTo = (index: number) => {
    const to = Math.max(0, Math.min(rows.length - 1, index));
    const row = rows[to];
    if (row === undefined) return;
    setActive(rowKey(row));
    lastSeen.current = to;
    virtual.scrollToIndex(to);
    // With the details open, moving selects each row in turn, as in a mail program.
    if (selected !== undefined) onSelect?.(rowKey(row));
  };
  const check = (key: string) => {
    const next = new Set(checked);
    if (!next.delete(key)) next.add(key);
    onCheck?.(next);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    const at = indexOf(active ?? selected);
    const page = Math.floor((scroller.current?.clientHeight ?? rowHeight * 10) / rowHeight) - 2;
    const moves: Record<string, () => void> = {
      ArrowDown: () => moveTo(at + 1),
      ArrowUp: () => moveTo(at < 0 ? 0 : at - 1),
      j: () => moveTo(at + 1),
      k: () => moveTo(at < 0 ? 0 : at - 1),
      PageDown: () => moveTo(at + page),
      PageUp: () => moveTo(at - page),
      Home: () => moveTo(0),
      End: () => moveTo(rows.length - 1),
      Enter: () => active !== undefined && onSelect?.(active),
      " ": () => active !== undefined && (onCheck ? check(active) : onSelect?.(active)),
      x: () => active !== undefined && onCheck && check(active),
    };
    const move = moves[event.key];
    if (!move || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    move();
  };

  const activeIndex = indexOf(active);
  const isActiveDrawn = items.some((item) => item.index === activeIndex);
  const allChecked = checked !== undefined && rows.length > 0 && checked.size >= rows.length;
  return (
    <div className="table-frame">
      {waiting > 0 && (
        <button
          type="button"
          className="new-rows"
          onClick={() => {
            setReleased(released + 1);
            scroller.current?.scrollTo({ top: 0 });
          }}
        >
          <Icon name="up" size={12} />
          {countText(waiting)} new
          <span className="visually-hidden">. Show new rows</span>
        </button>
      )}
      <div
        ref={scroller}
        className={classNames("table", rows.length === 0 && "table-without-rows")}
        role="grid"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        aria-colcount={columns.length + (onCheck ? 1 : 0)}
        aria-activedescendant={isActiveDrawn ? `${id}-${activeIndex}` : undefined}
        aria-multiselectable={onCheck !== undefined || undefined}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScrolled(event.currentTarget.scrollTop > rowHeight / 2)}
      >
        <div className="table-head" role="row" aria-rowindex={1} tabIndex={-1} style={template}>
          {onCheck && (
            <div role="columnheader" tabIndex={-1} className="cell cell-checkbox">
              <input
                type="checkbox"
                aria-label="Select all rows"
                checked={allChecked}
                onChange={() => onCheck(allChecked ? new Set() : new Set(rows.map(rowKey)))}
              />
            </div>
          )}
          {columns.map((column) => (
            <div
              key={column.head}
              role="columnheader"
              tabIndex={-1}
              className={classNames("cell", column.align === "end" && "cell-end")}
              aria-sort={sortState(column.head, props.sort)}
            >
              {props.onSort && column.sortBy ? (
                <button
                  type="button"
                  className="table-sort"
                  onClick={() => props.onSort?.(nextSort(column.head, props.sort))}
                >
                  {column.head}
                  <span aria-hidden="true">
                    {props.sort === column.head ? " ↑" : props.sort === `-${column.head}` ? " ↓" : ""}
                  </span>
                </button>
              ) : (
                column.head
              )}
            </div>
          ))}
        </div>
        {rows.length > 0 && (
          <div className="table-body" role="rowgroup" style={{ height: virtual.getTotalSize() }}>
            {items.map((item) => {
              const row = rows[item.index]!;
              const key = rowKey(row);
              return (
                <TableRow
                  key={key}
                  id={`${id}-${item.index}`}
                  row={row}
                  rowId={key}
                  index={item.index}
                  top={item.start}
                  columns={columns as readonly Column<unknown>[]}
                  style={template}
                  isSelected={key === selected}
                  isActive={key === active}
                  isChecked={checked?.has(key)}
                  onSelect={select}
                  onActive={setActive}
                  onCheck={onCheck ? check : undefined}
                />
              );
            })}
          </div>
        )}
      </div>
      {/* Outside of the grid, which may contain only rows. */}
      {rows.length === 0 && (
        <div className="table-empty">{props.empty ?? <p className="quiet">No rows</p>}</div>
      )}
    </div>
  );
}

interface TableRowProps {
  readonly id: string;
  readonly row: unknown;
  readonly rowId: string;
  readonly index: number;
  readonly top: number;
  readonly columns: readonly Column<unknown>[];
  readonly style: { readonly gridTemplateColumns: string; readonly minWidth: number };
  readonly isSelected: boolean;
  readonly isActive: boolean;
  readonly isChecked: boolean | undefined;
  readonly onSelect: ((key: string) => void) | undefined;
  readonly onActive: (key: string) => void;
  readonly onCheck: ((key: string) => void) | undefined;
}

/** Handlers are left out: they do the same for every row. */
function isSameRow(a: TableRowProps, b: TableRowProps): boolean {
  return (
    a.row === b.row &&
    a.rowId === b.rowId &&
    a.top === b.top &&
    a.columns === b.columns &&
    a.style === b.style &&
    a.isSelected === b.isSelected &&
    a.isActive === b.isActive &&
    a.isChecked === b.isChecked &&
    (a.isChecked === undefined || a.onCheck === b.onCheck) &&
    a.onSelect === b.onSelect
  );
}

/** A row that renders again only when it changed. */
const TableRow = memo(function TableRow(props: TableRowProps) {
  const { row, rowId, onSelect, onCheck } = props;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the grid handles keys, and has the focus.
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
      {onCheck && (
        <div role="gridcell" tabIndex={-1} className="cell cell-checkbox">
          <input
            type="checkbox"
            aria-label={`Select ${rowId}`}
            checked={props.isChecked ?? false}
            onChange={() => onCheck(rowId)}
          />
        </div>
      )}
      {props.columns.map((column) => (
        <div
          key={column.head}
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
