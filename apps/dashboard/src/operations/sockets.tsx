import { useKhala } from "@khala/client/react";
import { useFetch } from "../data/fetch.ts";
import { readSockets, type Socket } from "../data/sockets.ts";
import { links, useParam } from "../router.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Id } from "../ui/format/id.tsx";
import { bytesText, countText } from "../ui/format/numbers.ts";
import { DetailPanel, Facts, Section, TextLink } from "../ui/panel/detail_panel.tsx";
import { type Column, numbers } from "../ui/table/columns.ts";
import { FilteredTable } from "../ui/table/filtered_table.tsx";

const EVERY_MS = 2_000;
const NO_SOCKETS: readonly Socket[] = [];
const CONVERSATION = "conversation:";

/** The topics and channels of a socket, in a line. */
function subscriptionsText({ channels }: Socket): string {
  return channels
    .flatMap(({ name, cursors }) => (cursors.length === 0 ? [name] : cursors.map(({ topic }) => topic)))
    .join(", ");
}

const stateBadge = ({ state }: Socket) => (
  <StateBadge state={state === "ok" ? "ok" : "waiting"} word={state === "ok" ? "ok" : "slow"} />
);

const COLUMNS: readonly Column<Socket>[] = [
  { head: "Subject", width: "minmax(90px, 1fr)", cell: ({ subject }) => subject },
  { head: "Kind", width: 110, wideOnly: true, cell: ({ kind }) => kind },
  {
    head: "Subscriptions",
    width: "minmax(140px, 3fr)",
    cell: (socket) => {
      const text = subscriptionsText(socket);
      return text === "" ? <span className="quiet">none</span> : <span title={text}>{text}</span>;
    },
  },
  { head: "State", width: 80, cell: stateBadge },
  numbers("Queued", 80, ({ queued_bytes }) => bytesText(queued_bytes)),
  numbers("Sent", 80, ({ sent }) => countText(sent)),
  { head: "From", width: 130, wideOnly: true, cell: ({ remote }) => <span className="mono">{remote}</span> },
  numbers("Connected", 90, ({ connected_at }) => <Ago at={connected_at} />),
];

const KEYS = [
  { name: "subject", about: "Subject" },
  { name: "kind", about: "Kind of socket", values: ["phoenix", "conversation", "ai"] },
  { name: "follows", about: "Topic or channel" },
  { name: "state", about: "State", values: ["ok", "slow"] },
  { name: "from", about: "Address" },
];

const rowKey = ({ id }: Socket) => id;
const fields = (socket: Socket) => ({
  id: socket.id,
  subject: socket.subject,
  kind: socket.kind,
  follows: `${subscriptionsText(socket)} ${socket.channels.map(({ name }) => name).join(" ")}`,
  state: socket.state,
  from: socket.remote,
});

/** The open sockets, and the subscriptions of each. */
export function Sockets() {
  const { ops } = useKhala();
  const state = useFetch(["sockets"], async () => readSockets(await ops.sockets()), EVERY_MS);
  const all = state.data ?? NO_SOCKETS;
  const [item, setItem] = useParam("item");
  const selected = all.find(({ id }) => id === item);
  return (
    <FilteredTable
      label="Open sockets"
      state={state}
      columns={COLUMNS}
      rows={all}
      rowKey={rowKey}
      fields={fields}
      keys={KEYS}
      noMatch="No socket matches the filter"
      selected={selected?.id}
      onSelect={setItem}
      panel={selected && <SocketPanel socket={selected} onClose={() => setItem(undefined)} />}
      empty={
        <Empty title="No open sockets" icon="operations">
          Clients appear here when they connect, with their subscriptions and positions.
        </Empty>
      }
    />
  );
}

function SocketPanel({ socket, onClose }: { readonly socket: Socket; readonly onClose: () => void }) {
  return (
    <DetailPanel title={socket.subject} label="Socket" onClose={onClose}>
      <Facts
        facts={[
          ["State", stateBadge(socket)],
          ["Id", <Id key="id" value={socket.id} length={24} />],
          ["Org", socket.org],
          ["Kind", socket.kind],
          ["From", <code key="from">{socket.remote}</code>],
          ["Connected", <Ago key="at" at={socket.connected_at} />],
          ["Queued", bytesText(socket.queued_bytes)],
          ["Sent", countText(socket.sent)],
        ]}
      />
      {socket.channels.map(({ name, cursors }) => (
        <Section key={name} title={name}>
          {name.startsWith(CONVERSATION) ? (
            <TextLink href={links.conversation(name.slice(CONVERSATION.length))}>Open conversation</TextLink>
          ) : cursors.length === 0 ? (
            <p className="quiet">No positions: this channel has no history.</p>
          ) : (
            <Facts
              facts={cursors.map(({ topic, watermark }) => [
                topic,
                <TextLink key={topic} mono href={links.topic(topic)}>
                  {watermark}
                </TextLink>,
              ])}
            />
          )}
        </Section>
      ))}
    </DetailPanel>
  );
}
