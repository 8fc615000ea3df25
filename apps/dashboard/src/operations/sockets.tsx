import { useKhala } from "@khala/client/react";
import { Ago } from "../parts/ago.tsx";
import { useAsk } from "../parts/asking.ts";
import { DetailPanel, Facts, Section, WithPanel } from "../parts/detail_panel.tsx";
import { Id } from "../parts/id.tsx";
import { bytesText, countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { links, useParam } from "../router.ts";
import { opsWords } from "../strings/operations.ts";
import { FilterBar, useFilter } from "./filtered.tsx";
import { readSockets, type Socket } from "./ops_read.ts";

const words = opsWords.sockets;
const EVERY_MS = 2_000;
const NONE: readonly Socket[] = [];

const stateWord = (state: string) =>
  state === "ok" ? <StateBadge state="ok" /> : <StateBadge state="waiting" word={words.slow} />;

const COLUMNS: readonly Column<Socket>[] = [
  { id: "subject", head: words.subject, cell: ({ subject }) => subject, width: "minmax(90px, 1fr)" },
  { id: "kind", head: words.kind, cell: ({ kind }) => kind, width: 110, wideOnly: true },
  {
    id: "follows",
    head: words.follows,
    cell: ({ follows }) =>
      follows === "" ? (
        <span className="quiet">{words.nothingFollowed}</span>
      ) : (
        <span title={follows}>{follows}</span>
      ),
    width: "minmax(140px, 3fr)",
  },
  { id: "state", head: words.state, cell: ({ state }) => stateWord(state), width: 80 },
  {
    id: "queue",
    head: words.queue,
    cell: ({ queuedBytes }) => bytesText(queuedBytes),
    width: 80,
    align: "end",
    wideOnly: true,
  },
  {
    id: "sent",
    head: words.sent,
    cell: ({ sent }) => countText(sent),
    width: 80,
    align: "end",
    wideOnly: true,
  },
  {
    id: "from",
    head: words.remote,
    cell: ({ remote }) => <span className="mono">{remote}</span>,
    width: 130,
    wideOnly: true,
  },
  {
    id: "connected",
    head: words.connected,
    cell: ({ connectedAt }) => <Ago at={connectedAt} />,
    width: 90,
    align: "end",
    wideOnly: true,
  },
];

const KEYS = [
  { name: "subject", about: words.keys.subject },
  { name: "kind", about: words.keys.kind, values: ["phoenix", "conversation", "ai"] },
  { name: "follows", about: words.keys.follows },
  { name: "state", about: words.keys.state, values: ["ok", "slow"] },
  { name: "from", about: words.keys.from },
];

const rowKey = ({ id }: Socket) => id;
const fields = ({ id, subject, kind, follows, state, remote, channels }: Socket) => ({
  id,
  subject,
  kind,
  follows: `${follows} ${channels.map(({ name }) => name).join(" ")}`,
  state,
  from: remote,
});

/** Who is connected, and what each follows. */
export function Sockets() {
  const { ops } = useKhala();
  const asked = useAsk("sockets", async () => readSockets(await ops.sockets()), { everyMs: EVERY_MS });
  const all = asked.data?.sockets ?? NONE;
  const { rows, text } = useFilter(all, fields);
  const [item, setItem] = useParam("item");
  const selected = all.find(({ id }) => id === item);
  if (asked.loading) return <Loading />;
  if (asked.error && !asked.data) return <Failure error={asked.error} onRetry={asked.again} />;
  return (
    <>
      <FilterBar label={words.label} keys={KEYS} shown={rows.length} all={all.length} />
      {asked.error && <Failure error={asked.error} inline onRetry={asked.again} />}
      <WithPanel panel={selected && <SocketPanel socket={selected} onClose={() => setItem(undefined)} />}>
        <Table
          label={words.label}
          columns={COLUMNS}
          rows={rows}
          rowKey={rowKey}
          selected={selected?.id}
          onSelect={setItem}
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
      </WithPanel>
    </>
  );
}

function SocketPanel({ socket, onClose }: { readonly socket: Socket; readonly onClose: () => void }) {
  return (
    <DetailPanel title={socket.subject} label={words.label} onClose={onClose}>
      <Facts
        facts={[
          { name: words.state, value: stateWord(socket.state) },
          { name: words.id, value: <Id value={socket.id} length={24} /> },
          { name: words.org, value: socket.org },
          { name: words.kind, value: socket.kind },
          { name: words.remote, value: <span className="mono">{socket.remote}</span> },
          { name: words.connected, value: <Ago at={socket.connectedAt} /> },
          { name: words.queue, value: bytesText(socket.queuedBytes) },
          { name: words.sent, value: countText(socket.sent) },
        ]}
      />
      {socket.channels.map(({ name, cursors }) => (
        <Section key={name} title={name}>
          {name.startsWith("conversation:") ? (
            <a className="text-link" href={links.conversation(name.slice("conversation:".length))}>
              {words.conversation}
            </a>
          ) : cursors.length === 0 ? (
            <p className="quiet">{words.noCursors}</p>
          ) : (
            <Facts
              facts={cursors.map(({ topic, watermark }) => ({
                name: topic,
                value: (
                  <a className="text-link mono" href={links.topic(topic)}>
                    {watermark}
                  </a>
                ),
              }))}
            />
          )}
        </Section>
      ))}
    </DetailPanel>
  );
}
