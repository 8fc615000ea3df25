import { useKhala } from "@khala/client/react";
import { Ago } from "../parts/ago.tsx";
import { useAsk } from "../parts/asking.ts";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { hrefTo } from "../router.ts";
import { errorWords, isKnownError } from "../strings/errors.ts";
import { opsWords } from "../strings/operations.ts";
import { FilterBar, useFilter } from "./filtered.tsx";
import { type Close, readSockets } from "./ops_read.ts";

const words = opsWords.closes;
const EVERY_MS = 3_000;
const NONE: readonly Close[] = [];

/** Codes of WebSocket that come without one of ours. */
const MEANINGS: Readonly<Record<number, string>> = {
  1000: words.normal,
  1001: words.goingAway,
  1005: words.byClient,
  1006: words.lost,
};

function meaningOf({ code, reason }: Close): string {
  return isKnownError(reason) ? `${errorWords(reason).title}.` : (MEANINGS[code] ?? words.byClient);
}

const COLUMNS: readonly Column<Close>[] = [
  { id: "at", head: words.at, cell: ({ at }) => <Ago at={at} />, width: 80 },
  { id: "subject", head: words.subject, cell: ({ subject }) => subject, width: "minmax(90px, 1fr)" },
  {
    id: "code",
    head: words.code,
    cell: ({ code }) => <span className="mono">{code}</span>,
    width: 60,
    wideOnly: true,
  },
  {
    id: "reason",
    head: words.reason,
    cell: ({ reason }) =>
      isKnownError(reason) ? (
        <a className="text-link mono" href={hrefTo("operations", { tab: "errors", item: reason })}>
          {reason}
        </a>
      ) : (
        <span className="quiet">{reason || "–"}</span>
      ),
    width: "minmax(120px, 1.4fr)",
    wideOnly: true,
  },
  {
    id: "meaning",
    head: words.meaning,
    cell: (close) => <span title={meaningOf(close)}>{meaningOf(close)}</span>,
    width: "minmax(140px, 2fr)",
  },
  { id: "kind", head: words.kind, cell: ({ kind }) => kind, width: 110, wideOnly: true },
];

const KEYS = [
  { name: "subject", about: words.keys.subject },
  { name: "code", about: words.keys.code, values: ["1000", "1001", "1006", "1012", "1013", "4401", "4403"] },
  { name: "reason", about: words.keys.reason },
  { name: "kind", about: words.keys.kind, values: ["phoenix", "conversation", "ai"] },
];

const rowKey = ({ key }: Close) => key;
const fields = ({ subject, code, reason, kind }: Close) => ({ subject, code, reason, kind });

/** Who is gone, and why. */
export function Closes() {
  const { ops } = useKhala();
  const asked = useAsk("closes", async () => readSockets(await ops.sockets()), { everyMs: EVERY_MS });
  const all = asked.data?.closes ?? NONE;
  const { rows, text } = useFilter(all, fields);
  if (asked.loading) return <Loading />;
  if (asked.error && !asked.data) return <Failure error={asked.error} onRetry={asked.again} />;
  return (
    <>
      <FilterBar label={words.label} keys={KEYS} shown={rows.length} all={all.length} />
      {asked.error && <Failure error={asked.error} inline onRetry={asked.again} />}
      <Table
        label={words.label}
        columns={COLUMNS}
        rows={rows}
        rowKey={rowKey}
        empty={
          text === "" ? (
            <Empty title={words.empty} icon="operations">
              {words.emptyBody}
            </Empty>
          ) : (
            <Empty title={words.noMatch} icon="search" />
          )
        }
      />
    </>
  );
}
