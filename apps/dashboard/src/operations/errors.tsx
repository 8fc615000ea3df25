import { useKhala } from "@khala/client/react";
import { Ago } from "../parts/ago.tsx";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel, Facts, Section, WithPanel } from "../parts/detail_panel.tsx";
import { countText } from "../parts/numbers.ts";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { links, useParam } from "../router.ts";
import { errorWords } from "../strings/errors.ts";
import { opsWords } from "../strings/operations.ts";
import { type ErrorCount, readErrors } from "./ops_read.ts";

const words = opsWords.errors;
const EVERY_MS = 3_000;

const COLUMNS: readonly Column<ErrorCount>[] = [
  {
    id: "code",
    head: words.code,
    cell: ({ code }) => <span className="mono">{code}</span>,
    width: "minmax(140px, 1fr)",
  },
  {
    id: "meaning",
    head: words.meaning,
    cell: ({ code }) => errorWords(code).title,
    width: "minmax(160px, 2fr)",
    wideOnly: true,
  },
  { id: "count", head: words.count, cell: ({ count }) => countText(count), width: 80, align: "end" },
  { id: "last", head: words.last, cell: ({ lastAt }) => <Ago at={lastAt} />, width: 90, align: "end" },
];

const rowKey = ({ code }: ErrorCount) => code;

/** What went wrong since the start, by code. */
export function Errors() {
  const { ops } = useKhala();
  const asked = useAsk("errors", async () => readErrors(await ops.errors()), { everyMs: EVERY_MS });
  const [item, setItem] = useParam("item");
  return (
    <WithPanel
      panel={
        item !== undefined && (
          <ErrorPanel
            code={item}
            counted={asked.data?.find(({ code }) => code === item)}
            onClose={() => setItem(undefined)}
          />
        )
      }
    >
      {asked.loading && <Loading />}
      {asked.error && <Failure error={asked.error} inline={asked.data !== undefined} onRetry={asked.again} />}
      {asked.data && (
        <Table
          label={words.label}
          columns={COLUMNS}
          rows={asked.data}
          rowKey={rowKey}
          selected={item}
          onSelect={setItem}
          empty={
            <Empty title={words.empty} icon="ok">
              {words.emptyBody}
            </Empty>
          }
        />
      )}
    </WithPanel>
  );
}

interface ErrorPanelProps {
  readonly code: string;
  readonly counted: ErrorCount | undefined;
  readonly onClose: () => void;
}

function ErrorPanel({ code, counted, onClose }: ErrorPanelProps) {
  const { title, why, todo } = errorWords(code);
  return (
    <DetailPanel title={title} label={title} onClose={onClose}>
      <Facts
        facts={[
          { name: words.code, value: <code>{code}</code> },
          { name: words.count, value: countText(counted?.count ?? 0) },
          counted && { name: words.last, value: <Ago at={counted.lastAt} /> },
        ]}
      />
      <Section title={words.why}>{why}</Section>
      <Section title={words.todo}>{todo}</Section>
      <p className="panel-links">
        <a href={links.closes(`reason:${code}`)}>{words.closes}</a>
      </p>
      <p className="quiet">{words.docs}</p>
    </DetailPanel>
  );
}
