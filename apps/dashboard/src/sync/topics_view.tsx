import { bytesText, countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { hrefTo, links } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import type { Topic } from "./sync_types.ts";

const words = syncWords.topics;
const keyOf = ({ topic }: Topic) => topic;

const COLUMNS: readonly Column<Topic>[] = [
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
  { id: "projection", head: words.projection, width: 112, cell: (topic) => <Projection topic={topic} /> },
  {
    id: "documents",
    head: words.documents,
    width: 80,
    align: "end",
    wideOnly: true,
    cell: ({ topic, documents }) => <Documents topic={topic} documents={documents} />,
  },
  {
    id: "head",
    head: words.head,
    width: 64,
    align: "end",
    wideOnly: true,
    cell: ({ head }) => countText(Number(head)),
  },
  {
    id: "floor",
    head: words.floor,
    width: 72,
    align: "end",
    wideOnly: true,
    cell: ({ floor }) => countText(Number(floor)),
  },
  {
    id: "lag",
    head: words.lag,
    width: 56,
    align: "end",
    wideOnly: true,
    cell: ({ lag }) => <span className={lag > 0 ? "waiting" : undefined}>{countText(lag)}</span>,
  },
  {
    id: "retention",
    head: words.retention,
    width: 84,
    align: "end",
    wideOnly: true,
    cell: ({ retentionHours }) => words.hours(retentionHours),
  },
  {
    id: "journal",
    head: words.journal,
    width: 84,
    align: "end",
    wideOnly: true,
    cell: ({ journalBytes, journalRows }) => (
      <span title={words.rows(journalRows)}>{bytesText(journalBytes)}</span>
    ),
  },
  {
    id: "subscribers",
    head: words.subscribers,
    width: 88,
    align: "end",
    wideOnly: true,
    cell: ({ topic, subscribers }) => (
      <a href={hrefTo("sync", { tab: "clients", q: `topic:${topic}` })}>{countText(subscribers)}</a>
    ),
  },
];

/** The database's estimate; before it has made one, there is no number to show. */
function Documents({ topic, documents }: Pick<Topic, "topic" | "documents">) {
  if (documents === 0) return <span className="quiet">–</span>;
  return <a href={links.topic(topic)}>{countText(documents)}</a>;
}

/** The topics with their figures. Choosing one shows its documents. */
export function TopicsView({
  topics,
  onOpen,
}: {
  readonly topics: readonly Topic[];
  readonly onOpen: (topic: string) => void;
}) {
  return (
    <Table
      label={words.label}
      columns={COLUMNS}
      rows={topics}
      rowKey={keyOf}
      onSelect={(key) => key !== undefined && onOpen(key)}
      empty={
        <Empty title={words.emptyTitle} icon="sync">
          {words.emptyText}
        </Empty>
      }
    />
  );
}

/** How the projection of a topic stands: with what is missing, and why it stopped. */
function Projection({ topic: { projection } }: { readonly topic: Topic }) {
  const { state, message, behind } = projection;
  if (state === "broken")
    return (
      <span title={message}>
        <StateBadge state="failed" word={words.states.broken} />
      </span>
    );
  if (state === "elsewhere") return <StateBadge state="ok" word={words.states.elsewhere} />;
  if (behind !== undefined && behind > 0) return <StateBadge state="working" word={words.behind(behind)} />;
  return <StateBadge state="ok" word={words.caughtUp} />;
}

/** The same figures in a line above the documents of a topic. */
export function TopicFigures({ topic }: { readonly topic: Topic }) {
  const figures: readonly (readonly [string, string, string])[] = [
    [words.head, countText(Number(topic.head)), words.headHelp],
    [words.floor, countText(Number(topic.floor)), words.floorHelp],
    [words.lag, countText(topic.lag), words.lagHelp],
    [words.retention, words.hours(topic.retentionHours), ""],
    [words.subscribers, countText(topic.subscribers), ""],
  ];
  return (
    <dl className="topic-figures">
      {figures.map(([name, value, help]) => (
        <div key={name} title={help === "" ? undefined : help}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      <div>
        <dt>{words.projection}</dt>
        <dd>
          <Projection topic={topic} />
        </dd>
      </div>
    </dl>
  );
}
