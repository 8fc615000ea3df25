import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useFetch } from "../data/fetch.ts";
import { links } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Toolbar } from "../ui/controls/toolbar.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { Empty } from "../ui/feedback/notices.tsx";
import { type State, StateBadge } from "../ui/feedback/state_badge.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { countText } from "../ui/format/numbers.ts";
import { type Column, numbers } from "../ui/table/columns.ts";
import { Table } from "../ui/table/table.tsx";
import { readParity, type TopicParity } from "./sync_types.ts";

const EVERY_MS = 2_000;
const keyOf = ({ topic }: TopicParity) => topic;
const STATES: Readonly<Record<string, State>> = { following: "ok", behind: "working" };

const COLUMNS: readonly Column<TopicParity>[] = [
  {
    head: "Topic",
    width: "minmax(180px, 2fr)",
    cell: ({ topic }) => (
      <a className="mono" href={links.topic(topic)}>
        {topic}
      </a>
    ),
  },
  {
    head: "State",
    width: 130,
    cell: ({ state }) => <StateBadge state={STATES[state] ?? "waiting"} word={state} />,
  },
  { head: "Behind", width: 80, align: "end", cell: ({ lag }) => countText(lag) },
  numbers("Checked", 90, ({ at, checked }) => (at === undefined ? "–" : countText(checked))),
  {
    head: "Differences",
    width: 100,
    align: "end",
    cell: ({ at, differences }) =>
      at === undefined ? (
        "–"
      ) : (
        <span className={differences > 0 ? "failed" : "ok"}>{countText(differences)}</span>
      ),
  },
  {
    head: "Last check",
    width: 100,
    wideOnly: true,
    cell: ({ at }) => (at === undefined ? <span className="quiet">never</span> : <Ago at={at} />),
  },
];

/** How the mirror compares with the read models, topic by topic. */
export function Parity() {
  const { ops } = useKhala();
  const parity = useFetch(["parity"], async () => readParity(await ops.parity()), EVERY_MS);
  const compare = useMutation({ mutationFn: () => ops.compareParity(), onSettled: parity.refetch });
  return (
    <Fetched state={parity}>
      {({ sink, topics }) =>
        sink === "none" ? (
          <Empty title="No mirror configured" icon="sync">
            Parity compares every topic with a second store during a migration. Set KHALA_MIRROR to start one.
          </Empty>
        ) : (
          <>
            <Toolbar
              label="Parity with the mirror"
              end={
                <Button icon="retry" busy={compare.isPending} onClick={() => compare.mutate()}>
                  Compare now
                </Button>
              }
            >
              Compared with {sink}
            </Toolbar>
            {compare.error && (
              <p className="note failed" role="alert">
                The comparison failed. {compare.error.message}
              </p>
            )}
            <Table
              label="Parity with the mirror"
              columns={COLUMNS}
              rows={topics}
              rowKey={keyOf}
              empty={<Empty title="No topics to compare" icon="sync" />}
            />
            <p className="note">
              A comparison reads every document. khala parity also lists those that differ.
            </p>
          </>
        )
      }
    </Fetched>
  );
}
