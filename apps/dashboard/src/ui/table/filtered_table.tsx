import { type ReactNode, useMemo } from "react";
import type { FetchState } from "../../data/fetch.ts";
import { useParam } from "../../router.ts";
import { parseFilter, passes } from "../controls/filter.ts";
import { FilterInput, type FilterKey } from "../controls/filter_input.tsx";
import { Toolbar } from "../controls/toolbar.tsx";
import { Empty, Failure, Loading } from "../feedback/notices.tsx";
import { countText } from "../format/numbers.ts";
import { WithPanel } from "../panel/detail_panel.tsx";
import { Table, type TableProps } from "./table.tsx";

/** The rows that match the filter in the query string (`q`). */
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

/** The filter of a list, kept in the query string as `q`. */
export function UrlFilter(props: {
  readonly label?: string;
  readonly keys: readonly FilterKey[];
  readonly placeholder?: string | undefined;
}) {
  const [text = "", setText] = useParam("q");
  return (
    <FilterInput
      label={props.label ?? "Filter"}
      keys={props.keys}
      placeholder={props.placeholder}
      value={text}
      onChange={(value) => setText(value, { replace: true })}
    />
  );
}

export interface FilteredTableProps<Row> extends TableProps<Row> {
  readonly state: FetchState<unknown>;
  /** The fields of a row that can be filtered by; the same function between renders. */
  readonly fields: (row: Row) => Readonly<Record<string, unknown>>;
  readonly keys: readonly FilterKey[];
  readonly placeholder?: string;
  /** Shown when no row matches the filter. */
  readonly noMatch: string;
  /** In front of the filter. */
  readonly before?: ReactNode;
  /** The details of the selected row. */
  readonly panel?: ReactNode;
}

/** A fetched list with a filter above it, and the details of the selected row beside it. */
export function FilteredTable<Row>(props: FilteredTableProps<Row>) {
  const { state, fields, keys, placeholder, noMatch, before, panel, ...table } = props;
  const { rows, text } = useFilter(props.rows, fields);
  const { data, error, loading, refetch } = state;
  if (loading) return <Loading />;
  if (error && data === undefined) return <Failure error={error} onRetry={refetch} />;
  const all = props.rows.length;
  return (
    <>
      <Toolbar
        label={props.label}
        end={
          <span className="quiet" role="status">
            {rows.length === all
              ? `${countText(all)} total`
              : `${countText(rows.length)} of ${countText(all)}`}
          </span>
        }
      >
        {before}
        <UrlFilter keys={keys} placeholder={placeholder} />
      </Toolbar>
      {error && <Failure error={error} inline onRetry={refetch} />}
      <WithPanel panel={panel}>
        <Table
          {...table}
          rows={rows}
          empty={text === "" ? props.empty : <Empty title={noMatch} icon="search" />}
        />
      </WithPanel>
    </>
  );
}
