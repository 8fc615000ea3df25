import { type UIEvent, useCallback, useEffect, useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { Button } from "../parts/button.tsx";
import { Icon } from "../parts/icons.tsx";
import { bytesText } from "../parts/numbers.ts";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { syncWords } from "../strings/sync.ts";
import type { DocumentRow } from "./document_pages.ts";
import type { Topic } from "./sync_types.ts";
import { useDocuments } from "./use_documents.ts";

const words = syncWords.documents;
const ROW_PX = 32;
const TYPING_MS = 200;
const keyOf = ({ doc_key }: DocumentRow) => doc_key;

const COLUMNS: readonly Column<DocumentRow>[] = [
  {
    id: "key",
    head: words.key,
    width: "minmax(180px, 3fr)",
    cell: ({ doc_key, gone }) => (
      <span className={gone ? "mono document-gone" : "mono"} title={doc_key}>
        {doc_key}
      </span>
    ),
  },
  {
    id: "version",
    head: words.version,
    width: 76,
    align: "end",
    cell: ({ doc_version, gone }) => (gone ? <span className="quiet">{words.gone}</span> : doc_version),
  },
  { id: "updated", head: words.updated, width: 88, cell: ({ updated_at }) => <Ago at={updated_at} /> },
  {
    id: "size",
    head: words.size,
    width: 72,
    align: "end",
    wideOnly: true,
    cell: ({ bytes }) => bytesText(bytes),
  },
  {
    id: "audience",
    head: words.audience,
    width: "minmax(100px, 1fr)",
    wideOnly: true,
    cell: ({ audience }) =>
      audience.length === 0 ? <span className="quiet">{words.everyone}</span> : audience.join(", "),
  },
];

export interface DocumentsViewProps {
  readonly topicName: string;
  /** Undefined while the topics are on their way, or are not allowed. */
  readonly topic: Topic | undefined;
  readonly search: string;
  readonly onSearch: (search: string) => void;
  readonly selected: string | undefined;
  readonly onSelect: (key: string | undefined) => void;
}

/** The documents of a topic: as many as there are, read as one scrolls, searched by key. */
export function DocumentsView({
  topicName,
  topic,
  search,
  onSearch,
  selected,
  onSelect,
}: DocumentsViewProps) {
  const settled = useSettled(search, TYPING_MS);
  const documents = useDocuments(topicName, settled, topic?.head);
  const { rows, more, error, look } = documents;

  const onScroll = useCallback(
    ({ target }: UIEvent) => {
      if (!(target instanceof HTMLElement)) return;
      const first = Math.floor(target.scrollTop / ROW_PX);
      look(first, first + Math.ceil(target.clientHeight / ROW_PX));
    },
    [look],
  );

  return (
    <>
      <Toolbar
        label={words.label(topicName)}
        end={<Progress documents={documents} topic={topic} search={settled} />}
      >
        <div className="filter search">
          <Icon name="search" />
          <input
            type="search"
            aria-label={words.search}
            placeholder={words.searchHint}
            autoComplete="off"
            spellCheck={false}
            value={search}
            onChange={(event) => onSearch(event.target.value)}
          />
        </div>
        {documents.added > 0 && (
          <Button icon="retry" title={words.addedHelp} onClick={documents.restart}>
            {words.added(documents.added)}
          </Button>
        )}
      </Toolbar>
      {error && rows.length > 0 && <Failure error={error} inline onRetry={documents.restart} />}
      {error && rows.length === 0 ? (
        <Failure error={error} onRetry={documents.restart} />
      ) : rows.length === 0 && more ? (
        <Loading />
      ) : (
        <div className="fill" onScrollCapture={onScroll}>
          <Table
            label={words.label(topicName)}
            columns={COLUMNS}
            rows={rows}
            rowKey={keyOf}
            selected={selected}
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

/** How much of the list is here, and the button for all of it. */
function Progress({ documents: { rows, more, loadingAll, setLoadingAll }, topic, search }: ProgressProps) {
  const about = Math.max(topic?.documents ?? 0, rows.length + 1);
  const text = !more
    ? words.all(rows.length)
    : search !== ""
      ? words.found(rows.length)
      : words.loaded(rows.length, about);
  if (rows.length === 0 && more) return null;
  return (
    <>
      <span className="quiet" role="status">
        {text}
      </span>
      {more && rows.length > 0 && (
        <Button kind="bare" busy={false} onClick={() => setLoadingAll(!loadingAll)}>
          {loadingAll ? words.stopLoading : words.loadAll}
        </Button>
      )}
    </>
  );
}

function NoDocuments({ search, onClear }: { readonly search: string; readonly onClear: () => void }) {
  if (search === "")
    return (
      <Empty title={words.emptyTitle} icon="sync">
        {words.emptyText}
      </Empty>
    );
  return (
    <Empty
      title={words.noneTitle(search)}
      icon="search"
      action={<Button onClick={onClear}>{words.clear}</Button>}
    >
      {words.noneText}
    </Empty>
  );
}

/** The value once it has not changed for a moment: a search is asked when a person has typed it. */
function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
