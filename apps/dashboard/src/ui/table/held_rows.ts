import { useMemo, useRef } from "react";

export interface HeldRows<Row> {
  readonly rows: readonly Row[];
  /** How many new rows wait to be shown. */
  readonly waiting: number;
}

/** The rows at the time somebody began to read, in their order, each as last seen. */
export type Hold<Row> = ReadonlyMap<string, Row>;

/**
 * Keeps rows in place while a person reads: contents change in place, new rows are counted, and removed ones stay. With
 * `reading` false everything passes through.
 */
export function useHeldRows<Row>(
  rows: readonly Row[],
  rowKey: (row: Row) => string,
  reading: boolean,
): HeldRows<Row> {
  const hold = useRef<Hold<Row> | undefined>(undefined);
  return useMemo(() => {
    if (!reading) {
      hold.current = undefined;
      return { rows, waiting: 0 };
    }
    const next = holdRows(hold.current, rows, rowKey);
    hold.current = next.hold;
    return { rows: [...next.hold.values()], waiting: next.waiting };
  }, [rows, rowKey, reading]);
}

/** The rows to show after new ones arrived. Without a hold, it begins with them. */
export function holdRows<Row>(
  hold: Hold<Row> | undefined,
  rows: readonly Row[],
  rowKey: (row: Row) => string,
): { readonly hold: Hold<Row>; readonly waiting: number } {
  const byKey = new Map(rows.map((row) => [rowKey(row), row]));
  if (!hold) return { hold: byKey, waiting: 0 };
  let waiting = 0;
  for (const key of byKey.keys()) if (!hold.has(key)) waiting++;
  const kept = new Map<string, Row>();
  for (const [key, last] of hold) kept.set(key, byKey.get(key) ?? last);
  return { hold: kept, waiting };
}
