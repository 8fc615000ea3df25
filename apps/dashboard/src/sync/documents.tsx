import { type UIEvent, useCallback, useEffect, useMemo } from "react";
import { setParams, useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { SearchInput, Toolbar } from "../ui/controls/toolbar.tsx";
import { Empty, Failure, Loading } from "../ui/feedback/notices.tsx";
import { countText, plural } from "../ui/format/numbers.ts";
import { useDebounced } from "../ui/hooks.ts";
import { sortRows } from "../ui/table/sort.ts";
import { Table } from "../ui/table/table.tsx";
import { documentColumns, type Field, fieldsOf } from "./document_columns.tsx";
import type { DocumentRow } from "./document_pages.ts";
import type { Topic } from "./sync_types.ts";
import { useDocuments } from "./use_documents.ts";

const ROW_PX = 32;
const DEBOUNCE_MS = 200;
/** A larger topic is sorted as far as it is loaded. */
const MAX_SORTED = 20_000;
const keyOf = ({ doc_key }: DocumentRow) => doc_key;

export interface DocumentsProps {
  readonly topicName: string;
  /** Undefined while the topics are loading, or not allowed. */
  readonly topic: Topic | undefined;
}

/** The documents of a topic, in columns of their own fields: loaded as one scrolls, searched by key and content, sorted. */
export function Documents({ topicName, topic }: DocumentsProps) {
  const [search = "", setSearch] = useParam("q");
  const [doc, setDoc] = useParam("doc");
  const settled = useDebounced(search, DEBOUNCE_MS);
  const documents = useDocuments(topicName, settled, topic?.head);
  const { rows, more, error, setVisible, reload } = documents;
  const [sort, setSort] = useParam("sort");
  // As text, which is equal while the fields are the same.
  const fields = JSON.stringify(fieldsOf(rows));
  const columns = useMemo(() => documentColumns(JSON.parse(fields) as readonly Field[]), [fields]);
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  // A part of a list cannot be sorted: the rest is loaded first, where it is not too much.
  const { setLoadingAll } = documents;
  const isSmall = (topic?.documents ?? 0) <= MAX_SORTED;
  useEffect(() => {
    if (sort !== undefined && more && isSmall) setLoadingAll(true);
  }, [sort, more, isSmall, setLoadingAll]);
  const onSearch = (text: string) => setSearch(text, { replace: true });
  const onSelect = (key: string | undefined) =>
    doc === undefined ? setDoc(key) : setParams({ doc: key, version: "" }, { replace: true });
  const onScroll = useCallback(
    ({ target }: UIEvent) => {
      if (!(target instanceof HTMLElement)) return;
      const first = Math.floor(target.scrollTop / ROW_PX);
      setVisible(first, first + Math.ceil(target.clientHeight / ROW_PX));
    },
    [setVisible],
  );

  return (
    <>
      <Toolbar
        label={`Documents of ${topicName}`}
        end={<Progress documents={documents} topic={topic} search={settled} />}
      >
        <SearchInput
          label="Search documents"
          placeholder="Search keys and content"
          value={search}
          onChange={onSearch}
        />
        {sort !== undefined && more && !isSmall && (
          <span className="quiet">Sorted among those that are loaded.</span>
        )}
        {documents.added > 0 && (
          <Button icon="retry" title="Reload the list to show new documents." onClick={reload}>
            {`${countText(documents.added)} new`}
          </Button>
        )}
      </Toolbar>
      {error && <Failure error={error} inline={rows.length > 0} onRetry={reload} />}
      {rows.length === 0 && more && !error && <Loading />}
      {(rows.length > 0 || !more) && (
        <div className="fill" onScrollCapture={onScroll}>
          <Table
            label={`Documents of ${topicName}`}
            columns={columns}
            rows={sorted}
            sort={sort}
            onSort={(next) => setSort(next, { replace: true })}
            rowKey={keyOf}
            selected={doc}
            onSelect={onSelect}
            onEnd={documents.loadMore}
            hold={false}
            empty={<NoDocuments search={settled} onClear={() => onSearch("")} />}
          />
        </div>
      )}
    </>
  );
}

interface ProgressProps {
  readonly documents: ReturnType<typeof useDocuments>;
  readonly topic: Topic | undefined;
  readonly search: string;
}

/** How much of the list is loaded, and the button for all of it. */
function Progress({ documents: { rows, more, loadingAll, setLoadingAll }, topic, search }: ProgressProps) {
  if (rows.length === 0 && more) return null;
  const estimate = Math.max(topic?.documents ?? 0, rows.length + 1);
  const text = !more
    ? plural(rows.length, "document")
    : search !== ""
      ? `${countText(rows.length)} found so far`
      : `${countText(rows.length)} of about ${plural(estimate, "document")}`;
  return (
    <>
      <span className="quiet" role="status">
        {text}
      </span>
      {more && (
        <Button kind="bare" onClick={() => setLoadingAll(!loadingAll)}>
          {loadingAll ? "Stop" : "Load all"}
        </Button>
      )}
    </>
  );
}

function NoDocuments({ search, onClear }: { readonly search: string; readonly onClear: () => void }) {
  if (search === "")
    return (
      <Empty title="No documents" icon="sync">
        A document appears when an event of its stream is projected.
      </Empty>
    );
  const clear = <Button onClick={onClear}>Clear search</Button>;
  return (
    <Empty title={`No document contains “${search}”`} icon="search" action={clear}>
      The search covers keys and content, in upper and lower case. Content over 64 KiB is not searched.
    </Empty>
  );
}
