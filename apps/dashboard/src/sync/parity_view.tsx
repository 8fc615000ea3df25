import { Ago } from "../parts/ago.tsx";
import { Button } from "../parts/button.tsx";
import { countText } from "../parts/numbers.ts";
import { type State, StateBadge } from "../parts/state_badge.tsx";
import { Empty, type FailureLike } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { links } from "../router.ts";
import { syncWords } from "../strings/sync.ts";
import type { TopicParity } from "./sync_types.ts";

const words = syncWords.parity;
const keyOf = ({ topic }: TopicParity) => topic;

const STATES: Readonly<Record<string, State>> = {
  following: "ok",
  behind: "working",
  "not following": "waiting",
};

const COLUMNS: readonly Column<TopicParity>[] = [
  {
    id: "topic",
    head: words.topic,
    width: "minmax(180px, 2fr)",
    cell: ({ topic }) => (
      <a className="mono" href={links.topic(topic)}>
        {topic}
      </a>
    ),
  },
  {
    id: "state",
    head: words.state,
    width: 130,
    cell: ({ state }) => (
      <StateBadge state={STATES[state] ?? "waiting"} word={words.states[state] ?? state} />
    ),
  },
  { id: "lag", head: words.lag, width: 80, align: "end", cell: ({ lag }) => countText(lag) },
  {
    id: "checked",
    head: words.checked,
    width: 90,
    align: "end",
    wideOnly: true,
    cell: ({ checked }) => (checked === undefined ? "–" : countText(checked)),
  },
  {
    id: "differences",
    head: words.differences,
    width: 100,
    align: "end",
    cell: ({ differences }) =>
      differences === undefined ? (
        "–"
      ) : (
        <span className={differences > 0 ? "failed" : "ok"}>{countText(differences)}</span>
      ),
  },
  {
    id: "at",
    head: words.at,
    width: 100,
    wideOnly: true,
    cell: ({ at }) => (at === undefined ? <span className="quiet">{words.never}</span> : <Ago at={at} />),
  },
];

export interface ParityViewProps {
  readonly sink: string;
  readonly topics: readonly TopicParity[];
  readonly comparing: boolean;
  /** Why it could not be compared. */
  readonly failure: FailureLike | undefined;
  readonly onCompare: () => void;
}

/** How the second sink compares, topic by topic. */
export function ParityView({ sink, topics, comparing, failure, onCompare }: ParityViewProps) {
  if (sink === "none")
    return (
      <Empty title={words.noneTitle} icon="sync">
        {words.noneText}
      </Empty>
    );
  return (
    <>
      <Toolbar
        label={words.label}
        end={
          <Button icon="retry" busy={comparing} onClick={onCompare}>
            {words.compare}
          </Button>
        }
      >
        {words.sink(sink)}
      </Toolbar>
      {failure && (
        <p className="room-note failed" role="alert">
          {words.failed} {failure.message}
        </p>
      )}
      <Table
        label={words.label}
        columns={COLUMNS}
        rows={topics}
        rowKey={keyOf}
        empty={
          <Empty title={words.emptyTitle} icon="sync">
            {words.emptyText}
          </Empty>
        }
      />
      <p className="room-note">{words.note}</p>
    </>
  );
}
