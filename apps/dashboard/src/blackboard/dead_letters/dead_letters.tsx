import { useKhala } from "@khala/client/react";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { type FetchState, useFetchState } from "../../data/fetch.ts";
import { usePaused } from "../../data/pause.tsx";
import { setParams, useParam } from "../../router.ts";
import { Button } from "../../ui/controls/button.tsx";
import { Select } from "../../ui/controls/select.tsx";
import { Toolbar } from "../../ui/controls/toolbar.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Empty } from "../../ui/feedback/notices.tsx";
import { StateBadge } from "../../ui/feedback/state_badge.tsx";
import { Ago } from "../../ui/format/ago.tsx";
import { countText, plural } from "../../ui/format/numbers.ts";
import { type Column, numbers } from "../../ui/table/columns.ts";
import { UrlFilter, useFilter } from "../../ui/table/filtered_table.tsx";
import { Table } from "../../ui/table/table.tsx";
import { type Agent, type DeadLetter, readDeadLetter } from "../board_types.ts";
import { ReplayDialog, type ReplayPlan } from "./replay_dialog.tsx";

const PAGE = 200;
const EVERY_MS = 3_000;
const ABOUT = "Tasks that failed all their attempts appear here. They can be inspected and replayed.";
const idOf = ({ id }: DeadLetter) => id;
const NONE: ReadonlySet<string> = new Set();

const COLUMNS: readonly Column<DeadLetter>[] = [
  {
    head: "Failure",
    width: 120,
    cell: ({ failure, raw }) => (
      <StateBadge state="failed" word={raw !== "" ? "Decoding failed" : failure.class} />
    ),
  },
  {
    head: "Message",
    width: "minmax(140px, 3fr)",
    cell: ({ failure: { message } }) => <span title={message}>{message}</span>,
  },
  {
    head: "Artifact",
    width: "minmax(80px, 1fr)",
    wideOnly: true,
    cell: ({ task }) => task?.artifacts.map(({ type }) => type).join(", ") ?? "–",
  },
  numbers("Attempts", 72, ({ attempts }) => attempts),
  { head: "Age", width: 76, wideOnly: true, cell: ({ failed_at }) => <Ago at={failed_at} /> },
  {
    head: "Replay",
    width: 92,
    wideOnly: true,
    cell: ({ replay_id }) =>
      replay_id === "" ? <span className="quiet">–</span> : <StateBadge state="ok" word="replayed" />,
  },
];

const KEYS = [
  { name: "class", about: "Error class" },
  { name: "kind", about: "Kind", values: ["fatal", "retryable", "rate_limited"] },
  { name: "type", about: "Artifact type" },
  { name: "correlation", about: "Correlation id" },
  { name: "attempts", about: "Attempts" },
  { name: "replayed", about: "Replayed", values: ["yes", "no"] },
];

const fields = ({ failure, task, attempts, replay_id, id }: DeadLetter) => ({
  id,
  class: failure.class,
  message: failure.message,
  kind: failure.kind,
  type: task?.artifacts.map(({ type }) => type).join(" ") ?? "",
  correlation: task?.artifacts[0]?.correlation_id ?? "",
  attempts,
  replayed: replay_id === "" ? "no" : "yes",
});

/** The dead letters of one agent: the one that the address names, or the one with the most. */
export function DeadLetters({ agents }: { readonly agents: FetchState<readonly Agent[]> }) {
  const [named] = useParam("agent");
  return (
    <Fetched state={agents}>
      {(data) => {
        if (data.length === 0)
          return (
            <Empty title="No dead letters" icon="ok">
              {ABOUT}
            </Empty>
          );
        const worst = data.reduce((most, agent) => (agent.dead > most.dead ? agent : most));
        const agent = named ?? worst.name;
        // A name that is not among the agents: "router" has the records that could not be decoded.
        const names = data.some(({ name }) => name === agent) ? data : [...data, { name: agent, dead: 0 }];
        return <LettersOf key={agent} agent={agent} agents={names} />;
      }}
    </Fetched>
  );
}

interface NoLettersProps {
  readonly agent: string;
  /** In all orgs for a token with `platform`; the list has those of the token's org only. */
  readonly counted: number;
}

function NoLetters({ agent, counted }: NoLettersProps) {
  if (counted === 0)
    return (
      <Empty title={`${agent} has no dead letters`} icon="ok">
        {ABOUT}
      </Empty>
    );
  return (
    <Empty title={`${agent} has no dead letters in this org`} icon="lock">
      {plural(counted, "dead letter")} of other orgs. A token of the org shows them:{" "}
      <code>{"khala token --org <org>"}</code>
    </Empty>
  );
}

interface LettersOfProps {
  readonly agent: string;
  readonly agents: readonly Pick<Agent, "name" | "dead">[];
}

function LettersOf({ agent, agents }: LettersOfProps) {
  const [, setFilter] = useParam("q");
  const [selected] = useParam("letter");
  const { state, loadMore } = useDeadLetters(agent);
  const [checked, setChecked] = useState(NONE);
  const [plan, setPlan] = useState<ReplayPlan>();
  const all = state.data ?? [];
  const { rows, text } = useFilter(all, fields);
  const picked = rows.filter(({ id }) => checked.has(id));
  const count =
    rows.length === all.length
      ? plural(rows.length, "dead letter")
      : `${countText(rows.length)} of ${plural(all.length, "dead letter")}`;
  // The agent is in the address from here on: the selection must not change when another agent gets more letters.
  const onSelect = (id: string | undefined) =>
    setParams({ letter: id, agent, tab: "dead", artifact: "" }, { replace: selected !== undefined });

  return (
    <>
      <Toolbar
        label={`Dead letters of ${agent}`}
        end={
          <>
            <span className="quiet letters-count">
              {picked.length > 0 ? `${plural(picked.length, "dead letter")} selected` : count}
            </span>
            {picked.length > 0 ? (
              <Button
                kind="primary"
                icon="retry"
                onClick={() => setPlan({ agent, letters: picked, kind: "selected" })}
              >
                {`Replay ${countText(picked.length)}`}
              </Button>
            ) : (
              <Button
                icon="retry"
                disabled={rows.length === 0}
                onClick={() =>
                  setPlan({ agent, letters: rows, kind: text.trim() === "" ? "all" : "filtered" })
                }
              >
                Replay all…
              </Button>
            )}
          </>
        }
      >
        <Select
          label="Agent"
          value={agent}
          options={agents.map(({ name, dead }) => ({ value: name, label: `${name} (${dead})` }))}
          onChange={(name) => setParams({ agent: name, letter: "" })}
        />
        <UrlFilter label="Filter dead letters" keys={KEYS} />
      </Toolbar>
      <Fetched state={state}>
        {() => (
          <Table
            label={`Dead letters of ${agent}`}
            columns={COLUMNS}
            rows={rows}
            rowKey={idOf}
            selected={selected}
            onSelect={onSelect}
            checked={checked}
            onCheck={setChecked}
            onEnd={loadMore}
            empty={
              all.length === 0 ? (
                <NoLetters agent={agent} counted={agents.find(({ name }) => name === agent)?.dead ?? 0} />
              ) : (
                <Empty
                  title="No dead letter matches the filter"
                  action={
                    <Button onClick={() => setFilter(undefined, { replace: true })}>Clear filter</Button>
                  }
                />
              )
            }
          />
        )}
      </Fetched>
      {plan && (
        <ReplayDialog
          plan={plan}
          onClose={() => setPlan(undefined)}
          onDone={() => {
            setChecked(NONE);
            state.refetch();
          }}
        />
      )}
    </>
  );
}

/** The dead letters of an agent, newest first, page by page. */
function useDeadLetters(agent: string) {
  const { board } = useKhala();
  const paused = usePaused();
  const key = ["dead-letters", agent];
  const query = useInfiniteQuery({
    queryKey: key,
    queryFn: async ({ pageParam: after }) => {
      const { dead_letters = [], next } = await board.deadLetters(agent, {
        limit: PAGE,
        ...(after && { after }),
      });
      return { letters: dead_letters.map(readDeadLetter), next };
    },
    initialPageParam: "",
    getNextPageParam: ({ next }) => next,
    // One request every three seconds, however many pages are loaded.
    refetchInterval: ({ state }) => !paused && EVERY_MS * (state.data?.pages.length ?? 1),
    refetchOnWindowFocus: !paused,
  });
  const { fetchNextPage } = query;
  const rows = useMemo(() => query.data?.pages.flatMap(({ letters }) => letters), [query.data]);
  return {
    state: useFetchState(key, query, rows),
    loadMore: useCallback(() => void fetchNextPage(), [fetchNextPage]),
  };
}
