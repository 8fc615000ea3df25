import { hrefTo, links, setParams } from "../router.ts";
import { Empty } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { bytesText, countText, plural } from "../ui/format/numbers.ts";
import { type Column, numbers } from "../ui/table/columns.ts";
import { Table } from "../ui/table/table.tsx";
import type { Topic } from "./sync_types.ts";

const keyOf = ({ topic }: Topic) => topic;
const retention = (hours: number) =>
  hours % 24 === 0 && hours > 0 ? plural(hours / 24, "day") : plural(hours, "hour");

const COLUMNS: readonly Column<Topic>[] = [
  {
    head: "Topic",
    width: "minmax(150px, 2fr)",
    cell: ({ topic }) => (
      <a className="mono" href={links.topic(topic)}>
        {topic}
      </a>
    ),
  },
  { head: "Projection", width: 112, cell: (topic) => <Projection topic={topic} /> },
  numbers("Documents", 80, ({ topic, documents }) =>
    documents > 0 ? <a href={links.topic(topic)}>{countText(documents)}</a> : countText(0),
  ),
  numbers("Head", 64, ({ head }) => countText(Number(head))),
  numbers("Floor", 72, ({ floor }) => countText(Number(floor))),
  numbers("Lag", 56, ({ lag }) => <span className={lag > 0 ? "waiting" : undefined}>{countText(lag)}</span>),
  numbers("Retention", 84, ({ retention_hours }) => retention(retention_hours)),
  numbers("Journal", 84, ({ journal_bytes, journal_rows }) => (
    <span title={plural(journal_rows, "row")}>{bytesText(journal_bytes)}</span>
  )),
  numbers("Subscribers", 88, ({ topic, subscribers }) => (
    <a href={hrefTo("sync", { tab: "clients", q: `topic:${topic}` })}>{countText(subscribers)}</a>
  )),
];

/** The topics with their figures. Selecting one shows its documents. */
export function Topics({ topics }: { readonly topics: readonly Topic[] }) {
  return (
    <Table
      label="Topics"
      columns={COLUMNS}
      rows={topics}
      rowKey={keyOf}
      onSelect={(topic) => topic !== undefined && setParams({ topic })}
      empty={
        <Empty title="No topics" icon="sync">
          Each model of the app is a topic. Define one with defineModel(…).
        </Empty>
      }
    />
  );
}

/** Why documents of a topic do not change, and what to do. */
export function failedText(failed: number): string {
  const streams = failed === 1 ? "1 stream is" : `${countText(failed)} streams are`;
  return `${streams} set aside, because the model failed at an event. Fix the model and restart; no event is lost.`;
}

function Projection({ topic: { projection, behind } }: { readonly topic: Topic }) {
  const { state, failed } = projection;
  if (failed > 0)
    return (
      <span title={failedText(failed)}>
        <StateBadge state="failed" word={`${countText(failed)} set aside`} />
      </span>
    );
  if (state === "elsewhere") return <StateBadge state="ok" word="other server" />;
  if (behind !== undefined && behind > 0)
    return <StateBadge state="working" word={`${countText(behind)} behind`} />;
  return <StateBadge state="ok" word="up to date" />;
}

/** The same figures in a line above the documents of a topic. */
export function TopicFigures({ topic }: { readonly topic: Topic }) {
  const figures = [
    ["Head", countText(Number(topic.head)), "The watermark of the last update."],
    [
      "Floor",
      countText(Number(topic.floor)),
      "The oldest watermark in the journal. Older cursors are stale.",
    ],
    ["Lag", countText(topic.lag), "Journal rows this server has not read yet. 0 without subscribers."],
    ["Retention", retention(topic.retention_hours)],
    ["Subscribers", countText(topic.subscribers)],
  ] as const;
  return (
    <dl className="topic-figures">
      {figures.map(([name, value, help]) => (
        <div key={name} title={help}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
      <div>
        <dt>Projection</dt>
        <dd>
          <Projection topic={topic} />
        </dd>
      </div>
    </dl>
  );
}
