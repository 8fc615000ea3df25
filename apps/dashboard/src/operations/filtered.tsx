import { type ReactNode, useMemo } from "react";
import { type FilterKey, FilterLine } from "../parts/filter_line.tsx";
import { parseFilter, passes } from "../parts/filter_words.ts";
import { Toolbar } from "../parts/toolbar.tsx";
import { useParam } from "../router.ts";
import { opsWords } from "../strings/operations.ts";

/** The filter of a list of this room: kept in the query string as `q`. */
export function useFilter<Row>(
  rows: readonly Row[],
  fields: (row: Row) => Readonly<Record<string, unknown>>,
): { readonly text: string; readonly rows: readonly Row[] } {
  const [text = ""] = useParam("q");
  const shown = useMemo(() => {
    if (text.trim() === "") return rows;
    const filter = parseFilter(text);
    return rows.filter((row) => passes(filter, fields(row)));
  }, [rows, text, fields]);
  return { text, rows: shown };
}

export interface FilterBarProps {
  readonly label: string;
  readonly keys: readonly FilterKey[];
  readonly shown: number;
  readonly all: number;
  readonly children?: ReactNode;
}

/** The line above a list: the filter, and how many pass. */
export function FilterBar({ label, keys, shown, all, children }: FilterBarProps) {
  const [text = "", setText] = useParam("q");
  return (
    <Toolbar
      label={label}
      end={
        <span className="quiet" role="status">
          {opsWords.count(shown, all)}
        </span>
      }
    >
      {children}
      <FilterLine
        label={opsWords.filter}
        value={text}
        onChange={(value) => setText(value, { replace: true })}
        keys={keys}
      />
    </Toolbar>
  );
}
