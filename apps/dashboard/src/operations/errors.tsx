import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { completeAll } from "../data/wire.ts";
import { links, useParam } from "../router.ts";
import { DocsLink } from "../ui/feedback/docs_link.tsx";
import { errorHelp } from "../ui/feedback/error_help.ts";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { countText } from "../ui/format/numbers.ts";
import { DetailPanel, Facts, Section, WithPanel } from "../ui/panel/detail_panel.tsx";
import type { Column } from "../ui/table/columns.ts";
import { Table } from "../ui/table/table.tsx";

const EVERY_MS = 3_000;
const ERROR_COUNT = { code: "", count: 0, last_at: "" };
type ErrorCount = Readonly<typeof ERROR_COUNT>;

const COLUMNS: readonly Column<ErrorCount>[] = [
  { head: "Code", width: "minmax(140px, 1fr)", cell: ({ code }) => <span className="mono">{code}</span> },
  { head: "Meaning", width: "minmax(160px, 2fr)", wideOnly: true, cell: ({ code }) => errorHelp(code).title },
  { head: "Count", width: 80, align: "end", cell: ({ count }) => countText(count) },
  { head: "Last", width: 90, align: "end", cell: ({ last_at }) => <Ago at={last_at} /> },
];

const rowKey = ({ code }: ErrorCount) => code;

/** Error responses since the server started, by code. */
export function Errors() {
  const { ops } = useKhala();
  const state = useFetch(
    ["errors"],
    async () => completeAll(ERROR_COUNT, (await ops.errors()).errors),
    EVERY_MS,
  );
  const [item, setItem] = useParam("item");
  return (
    <WithPanel
      // The help is also for those who may not see the counts.
      panel={
        item !== undefined && (
          <ErrorPanel
            code={item}
            counted={state.data?.find(({ code }) => code === item)}
            onClose={() => setItem(undefined)}
          />
        )
      }
    >
      <Fetched state={state}>
        {(rows) => (
          <Table
            label="Errors by code"
            columns={COLUMNS}
            rows={rows}
            rowKey={rowKey}
            selected={item}
            onSelect={setItem}
            empty={
              <Empty title="No errors" icon="ok">
                Error responses since the server started are counted here by code.
              </Empty>
            }
          />
        )}
      </Fetched>
    </WithPanel>
  );
}

interface ErrorPanelProps {
  readonly code: string;
  readonly counted: ErrorCount | undefined;
  readonly onClose: () => void;
}

function ErrorPanel({ code, counted, onClose }: ErrorPanelProps) {
  const { title, why, fix } = errorHelp(code);
  return (
    <DetailPanel title={title} label={title} onClose={onClose}>
      <Facts
        facts={[
          ["Code", <code key="code">{code}</code>],
          counted && ["Error responses", countText(counted.count)],
          counted && ["Last", <Ago key="at" at={counted.last_at} />],
        ]}
      />
      <Section title="Cause">{why}</Section>
      <Section title="What to do">{fix}</Section>
      {code === "limit_exceeded" && (
        <p className="panel-links">
          <a href={links.quotas()}>Quotas, and how often each org was refused</a>
        </p>
      )}
      <p className="panel-links">
        <a href={links.closes(`reason:${code}`)}>Sockets closed with this code</a>
      </p>
      <p className="panel-links">
        <DocsLink page="protocol/ERRORS.md">All codes, with their HTTP statuses and close codes</DocsLink>
      </p>
    </DetailPanel>
  );
}
