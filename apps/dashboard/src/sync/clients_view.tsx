import { useMemo } from "react";
import { Ago } from "../parts/ago.tsx";
import { FilterLine } from "../parts/filter_line.tsx";
import { parseFilter, passes } from "../parts/filter_words.ts";
import { Id } from "../parts/id.tsx";
import { bytesText, countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { links } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import type { Follower } from "./sync_types.ts";

const words = syncWords.clients;
const idOf = ({ id }: Follower) => id;

const COLUMNS: readonly Column<Follower>[] = [
  { id: "subject", head: words.subject, width: "minmax(80px, 1fr)", cell: ({ subject }) => subject },
  {
    id: "topic",
    head: words.topic,
    width: "minmax(150px, 2fr)",
    cell: ({ topic }) => (
      <a className="mono" href={links.topic(topic)}>
        {topic}
      </a>
    ),
  },
  {
    id: "behind",
    head: words.behind,
    width: 120,
    cell: ({ behind, state }) =>
      state === "slow" ? (
        <StateBadge state="failed" word={words.slow(behind ?? 0)} />
      ) : behind === undefined || behind === 0 ? (
        <StateBadge state="ok" word={words.none} />
      ) : (
        <StateBadge state="working" word={words.steps(behind)} />
      ),
  },
  {
    id: "cursor",
    head: words.cursor,
    width: 84,
    align: "end",
    wideOnly: true,
    cell: ({ watermark }) => countText(Number(watermark)),
  },
  {
    id: "head",
    head: words.head,
    width: 84,
    align: "end",
    wideOnly: true,
    cell: ({ head }) => (head === undefined ? "–" : countText(Number(head))),
  },
  {
    id: "queued",
    head: words.queued,
    width: 76,
    align: "end",
    wideOnly: true,
    cell: ({ queuedBytes }) => bytesText(queuedBytes),
  },
  {
    id: "connected",
    head: words.connected,
    width: 92,
    wideOnly: true,
    cell: ({ connectedAt }) => <Ago at={connectedAt} />,
  },
  {
    id: "socket",
    head: words.socket,
    width: 150,
    wideOnly: true,
    cell: ({ socket }) => <Id value={socket} length={14} />,
  },
];

export interface ClientsViewProps {
  readonly followers: readonly Follower[];
  readonly filter: string;
  readonly onFilter: (filter: string) => void;
}

/** Who follows what, where the cursor of each stands, and how far that is from the head. */
export function ClientsView({ followers, filter, onFilter }: ClientsViewProps) {
  const keys = useMemo(() => {
    const values = (of: (follower: Follower) => string) => [...new Set(followers.map(of))].sort();
    return [
      { name: "subject", about: words.subject, values: values(({ subject }) => subject) },
      { name: "topic", about: words.topic, values: values(({ topic }) => topic) },
      { name: "state", about: words.state, values: ["ok", "slow"] },
    ];
  }, [followers]);
  const rows = useMemo(() => {
    const read = parseFilter(filter);
    return followers.filter(({ subject, topic, state, socket, remote }) =>
      passes(read, { subject, topic, state, socket, remote }),
    );
  }, [followers, filter]);
  return (
    <>
      <Toolbar label={words.filter} end={<span className="quiet">{words.count(rows.length)}</span>}>
        <FilterLine
          label={words.filter}
          placeholder={words.filterHint}
          keys={keys}
          value={filter}
          onChange={onFilter}
        />
      </Toolbar>
      <Table
        label={words.label}
        columns={COLUMNS}
        rows={rows}
        rowKey={idOf}
        empty={
          followers.length === 0 ? (
            <Empty title={words.emptyTitle} icon="sync">
              {words.emptyText}
            </Empty>
          ) : (
            <Empty title={words.noneFit} icon="search">
              {words.noneFitText}
            </Empty>
          )
        }
      />
    </>
  );
}
