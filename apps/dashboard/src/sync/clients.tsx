import { useKhala } from "@khala/client/react";
import { useMemo } from "react";
import { useFetch } from "../data/fetch.ts";
import { readSockets } from "../data/sockets.ts";
import { links } from "../router.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id } from "../ui/format/id.tsx";
import { bytesText, countText } from "../ui/format/numbers.ts";
import { type Column, numbers } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";
import { type Subscription, subscriptionsOf, type Topic } from "./sync_types.ts";

const EVERY_MS = 2_000;
const idOf = ({ id }: Subscription) => id;
const fields = ({ socket: { subject, state, id, remote }, topic }: Subscription) => ({
  subject,
  topic,
  state,
  socket: id,
  remote,
});

const COLUMNS: readonly Column<Subscription>[] = [
  { head: "Subject", width: "minmax(64px, 1fr)", cell: ({ socket }) => socket.subject },
  {
    head: "Topic",
    width: "minmax(150px, 2fr)",
    cell: ({ topic }) => (
      <a className="mono" href={links.topic(topic)}>
        {topic}
      </a>
    ),
  },
  {
    head: "Behind",
    width: 120,
    cell: ({ behind = 0, socket: { state } }) =>
      state === "slow" ? (
        <StateBadge state="failed" word={`slow, ${countText(behind)} behind`} />
      ) : behind === 0 ? (
        <StateBadge state="ok" word="up to date" />
      ) : (
        <StateBadge state="working" word={`${countText(behind)} behind`} />
      ),
  },
  numbers("Cursor", 84, ({ watermark }) => countText(Number(watermark))),
  numbers("Head", 84, ({ head }) => (head === undefined ? "–" : countText(Number(head)))),
  numbers("Queued", 76, ({ socket }) => bytesText(socket.queued_bytes)),
  { head: "Connected", width: 92, wideOnly: true, cell: ({ socket }) => <Ago at={socket.connected_at} /> },
  { head: "Socket", width: 150, wideOnly: true, cell: ({ socket }) => <Id value={socket.id} length={14} /> },
];

/** The subscriptions of all clients: the position of each, and how far behind it is. */
export function Clients({ topics }: { readonly topics: readonly Topic[] }) {
  const { ops } = useKhala();
  const state = useFetch(["sockets"], async () => readSockets(await ops.sockets()), EVERY_MS);
  const rows = useMemo(() => subscriptionsOf(state.data ?? [], topics), [state.data, topics]);
  const keys = useMemo(() => {
    const distinct = (of: (row: Subscription) => string) => [...new Set(rows.map(of))].sort();
    return [
      { name: "subject", about: "Subject", values: distinct(({ socket }) => socket.subject) },
      { name: "topic", about: "Topic", values: distinct(({ topic }) => topic) },
      { name: "state", about: "State", values: ["ok", "slow"] },
    ];
  }, [rows]);
  return (
    <FilteredTable
      label="Connected clients"
      state={state}
      columns={COLUMNS}
      rows={rows}
      rowKey={idOf}
      fields={fields}
      keys={keys}
      noMatch="No client matches the filter"
      empty={
        <Empty title="No subscribers" icon="sync">
          Clients appear here when they subscribe to a topic. The Home page is one.
        </Empty>
      }
    />
  );
}
