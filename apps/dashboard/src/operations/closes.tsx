import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { type Close, readCloses } from "../data/sockets.ts";
import { links } from "../router.ts";
import { errorHelp, isKnownError } from "../ui/feedback/error_help.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { TextLink } from "../ui/panel/detail_panel.tsx";
import type { Column } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 3_000;
const NO_CLOSES: readonly Close[] = [];

/** WebSocket close codes that come without an error code of ours. */
const MEANINGS: Readonly<Record<number, string>> = {
  1000: "Closed normally.",
  1001: "The page was left, or the program ended.",
  1006: "The connection was lost without a close frame.",
};

function meaningOf({ code, reason }: Close): string {
  if (isKnownError(reason)) return `${errorHelp(reason).title}.`;
  return MEANINGS[code] ?? "The client disconnected.";
}

const COLUMNS: readonly Column<Close>[] = [
  { head: "When", width: 80, cell: ({ at }) => <Ago at={at} /> },
  { head: "Subject", width: "minmax(90px, 1fr)", cell: ({ subject }) => subject },
  { head: "Code", width: 60, wideOnly: true, cell: ({ code }) => <span className="mono">{code}</span> },
  {
    head: "Reason",
    width: "minmax(120px, 1.4fr)",
    wideOnly: true,
    cell: ({ reason }) =>
      isKnownError(reason) ? (
        <TextLink mono href={links.error(reason)}>
          {reason}
        </TextLink>
      ) : (
        <span className="quiet">{reason || "–"}</span>
      ),
  },
  {
    head: "Meaning",
    width: "minmax(140px, 2fr)",
    cell: (close) => <span title={meaningOf(close)}>{meaningOf(close)}</span>,
  },
  { head: "Kind", width: 110, wideOnly: true, cell: ({ kind }) => kind },
];

const KEYS = [
  { name: "subject", about: "Subject" },
  { name: "code", about: "Close code", values: ["1000", "1001", "1006", "1012", "1013", "4401", "4403"] },
  { name: "reason", about: "Error code or reason" },
  { name: "kind", about: "Kind of socket", values: ["phoenix", "conversation", "ai"] },
];

const rowKey = ({ key }: Close) => key;
const fields = ({ subject, code, reason, kind }: Close) => ({ subject, code, reason, kind });

/** The sockets that were closed, and why. */
export function Closes() {
  const { ops } = useKhala();
  const state = useFetch(["closes"], async () => readCloses(await ops.sockets()), EVERY_MS);
  return (
    <FilteredTable
      label="Closed sockets"
      state={state}
      columns={COLUMNS}
      rows={state.data ?? NO_CLOSES}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No closed socket matches the filter"
      empty={
        <Empty title="No closed sockets" icon="operations">
          The last 200 are kept, each with its reason.
        </Empty>
      }
    />
  );
}
