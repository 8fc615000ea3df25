import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";
import { partWords } from "../strings/parts.ts";
import { classNames } from "./class_names.ts";
import { useHeldRows } from "./held_rows.ts";
import { Icon } from "./icons.tsx";
import { type Column, fitting, tracks } from "./table_columns.ts";
import { TableRow } from "./table_row.tsx";
import { useWidth } from "./width.ts";
import "./table.css";

export type { Column } from "./table_columns.ts";

const ROW = 32;

export interface TableProps<Row> {
  /** What the rows are, for screen readers. */
  readonly label: string;
  /** Keep it the same array between renders (module constant or useMemo): rows are remembered by it. */
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  /** Unique among the rows. Keep it the same function between renders. */
  readonly rowKey: (row: Row) => string;
  readonly selected?: string | undefined;
  /** Without it rows cannot be selected. Undefined: nothing is, any more. */
  readonly onSelect?: (key: string | undefined) => void;
  /** Boxes to choose several rows. */
  readonly chosen?: ReadonlySet<string>;
  readonly onChoose?: (keys: ReadonlySet<string>) => void;
  /** Shown in place of the rows when there are none. */
  readonly empty?: ReactNode;
  /** Called when the end comes into view: fetch the next page. */
  readonly onEnd?: () => void;
  /** New rows wait behind a bar while the person reads (scrolled, or a row selected). On unless false. */
  readonly hold?: boolean;
}

/** The one table: virtual, dense, moved through by keyboard. It fills its container. */
export function Table<Row>(props: TableProps<Row>) {
  const { label, rowKey, selected, onSelect, chosen, onChoose, hold = true, onEnd } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const withChoice = onChoose !== undefined;
  const columns = useMemo(
    () => fitting(props.columns, width, withChoice),
    [props.columns, width, withChoice],
  );
  const [scrolled, setScrolled] = useState(false);
  const [released, setReleased] = useState(0);
  const [active, setActive] = useState<string>();
  const id = useId();

  // Letting the new rows in once means: not reading, for one render.
  const isReleased = useRef(released);
  const reading = hold && (scrolled || selected !== undefined) && isReleased.current === released;
  const { rows, waiting } = useHeldRows(props.rows, rowKey, reading);
  useEffect(() => {
    isReleased.current = released;
  }, [released]);

  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW,
    overscan: 4,
  });
  const items = virtual.getVirtualItems();
  const lastIndex = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (rows.length > 0 && lastIndex >= rows.length - 1) onEnd?.();
  }, [lastIndex, rows.length, onEnd]);

  const template = useMemo(() => tracks(columns, withChoice), [columns, withChoice]);
  const select = useMemo(() => (onSelect ? (key: string) => onSelect(key) : undefined), [onSelect]);
  // Where a row was when it was last looked for: to search a long list in every render would be felt.
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
    // With the details open, moving shows each row in turn, as in a mail program.
    if (selected !== undefined) onSelect?.(rowKey(row));
  };
  const choose = (key: string) => {
    const next = new Set(chosen);
    if (!next.delete(key)) next.add(key);
    onChoose?.(next);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget) return;
    const at = indexOf(active ?? selected);
    const page = Math.floor((scroller.current?.clientHeight ?? ROW * 10) / ROW) - 2;
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
      " ": () => active !== undefined && (onChoose ? choose(active) : onSelect?.(active)),
      x: () => active !== undefined && onChoose && choose(active),
    };
    const move = moves[event.key];
    if (!move || event.metaKey || event.ctrlKey || event.altKey) return;
    event.preventDefault();
    move();
  };

  const activeIndex = indexOf(active);
  const isActiveDrawn = items.some((item) => item.index === activeIndex);
  const allChosen = chosen !== undefined && rows.length > 0 && chosen.size >= rows.length;
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
          {partWords.newRows(waiting)}
          <span className="visually-hidden">. {partWords.showNew}</span>
        </button>
      )}
      <div
        ref={scroller}
        className={classNames("table", rows.length === 0 && "table-without-rows")}
        role="grid"
        aria-label={label}
        aria-rowcount={rows.length + 1}
        aria-colcount={columns.length + (onChoose ? 1 : 0)}
        aria-activedescendant={isActiveDrawn ? `${id}-${activeIndex}` : undefined}
        aria-multiselectable={onChoose !== undefined || undefined}
        tabIndex={0}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScrolled(event.currentTarget.scrollTop > ROW / 2)}
      >
        <div className="table-head" role="row" aria-rowindex={1} tabIndex={-1} style={template}>
          {onChoose && (
            <div role="columnheader" tabIndex={-1} className="cell cell-choose">
              <input
                type="checkbox"
                aria-label={partWords.chooseAll}
                checked={allChosen}
                onChange={() => onChoose(allChosen ? new Set() : new Set(rows.map(rowKey)))}
              />
            </div>
          )}
          {columns.map((column) => (
            <div
              key={column.id}
              role="columnheader"
              tabIndex={-1}
              className={classNames("cell", column.align === "end" && "cell-end")}
            >
              {column.head}
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
                  isChosen={chosen?.has(key)}
                  onSelect={select}
                  onActive={setActive}
                  onChoose={onChoose ? choose : undefined}
                />
              );
            })}
          </div>
        )}
      </div>
      {/* Outside of the grid, which may hold nothing but rows. */}
      {rows.length === 0 && (
        <div className="table-empty">{props.empty ?? <p className="quiet">{partWords.nothing}</p>}</div>
      )}
    </div>
  );
}
