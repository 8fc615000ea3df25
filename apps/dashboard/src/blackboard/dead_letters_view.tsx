import { useMemo, useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { Button } from "../parts/button.tsx";
import { FilterLine } from "../parts/filter_line.tsx";
import { parseFilter, passes } from "../parts/filter_words.ts";
import { Select } from "../parts/select.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { boardWords } from "../strings/blackboard.ts";
import type { DeadLetter } from "./board_types.ts";
import { ReplayDialog, type ReplayPlan } from "./replay_dialog.tsx";
import { useDeadLetters } from "./use_dead_letters.ts";

const words = boardWords.letters;
const idOf = ({ id }: DeadLetter) => id;
const NONE: ReadonlySet<string> = new Set();

const COLUMNS: readonly Column<DeadLetter>[] = [
  {
    id: "failure",
    head: words.failure,
    width: 120,
    cell: ({ failure, raw }) => (
      <StateBadge state="failed" word={raw !== "" ? words.undecodable : failure.class} />
    ),
  },
  {
    id: "message",
    head: words.message,
    width: "minmax(140px, 3fr)",
    cell: ({ failure: { message } }) => <span title={message}>{message}</span>,
  },
  {
    id: "artifact",
    head: words.artifact,
    width: "minmax(80px, 1fr)",
    wideOnly: true,
    cell: ({ task }) => task?.artifacts.map(({ type }) => type).join(", ") ?? "–",
  },
  {
    id: "attempts",
    head: words.attempts,
    width: 72,
    align: "end",
    wideOnly: true,
    cell: ({ attempts }) => attempts,
  },
  {
    id: "age",
    head: words.age,
    width: 76,
    wideOnly: true,
    cell: ({ failed_at }) => <Ago at={failed_at} />,
  },
  {
    id: "replayed",
    head: words.replay,
    width: 92,
    wideOnly: true,
    cell: ({ replay_id }) =>
      replay_id === "" ? <span className="quiet">–</span> : <StateBadge state="ok" word={words.replayed} />,
  },
];

const KEYS = [
  { name: "class", about: words.failure },
  { name: "kind", about: boardWords.letter.kind, values: ["fatal", "retryable", "rate_limited"] },
  { name: "type", about: words.artifact },
  { name: "correlation", about: boardWords.letter.correlation },
  { name: "attempts", about: words.attempts },
  { name: "replayed", about: words.replayed, values: ["yes", "no"] },
];

export interface DeadLettersViewProps {
  readonly agent: string;
  readonly agents: readonly { readonly name: string; readonly dead: number }[];
  readonly onAgent: (agent: string) => void;
  readonly filter: string;
  readonly onFilter: (filter: string) => void;
  readonly selected: string | undefined;
  readonly onSelect: (id: string | undefined) => void;
}

/** What an agent could not do: filtered, chosen one or many, and replayed. */
export function DeadLettersView(props: DeadLettersViewProps) {
  const { agent, agents, onAgent, filter, onFilter, selected, onSelect } = props;
  const letters = useDeadLetters(agent);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(NONE);
  const [plan, setPlan] = useState<ReplayPlan>();
  const rows = useMemo(() => {
    const read = parseFilter(filter);
    return letters.rows.filter((letter) => passes(read, fieldsOf(letter)));
  }, [letters.rows, filter]);
  const picked = rows.filter(({ id }) => chosen.has(id));

  return (
    <>
      <Toolbar
        label={words.label(agent)}
        end={
          <>
            <span className="quiet letters-count">
              {picked.length > 0
                ? words.selected(picked.length)
                : words.shown(rows.length, letters.rows.length)}
            </span>
            {letters.fresh > 0 && (
              <Button icon="up" onClick={letters.refresh}>
                {words.waiting(letters.fresh)}
              </Button>
            )}
            {picked.length > 0 ? (
              <Button
                kind="primary"
                icon="retry"
                onClick={() => setPlan({ agent, letters: picked, kind: "chosen" })}
              >
                {words.replaySelected(picked.length)}
              </Button>
            ) : (
              <Button
                icon="retry"
                disabled={rows.length === 0}
                onClick={() =>
                  setPlan({ agent, letters: rows, kind: filter.trim() === "" ? "all" : "filtered" })
                }
              >
                {words.replayAll}
              </Button>
            )}
          </>
        }
      >
        <Select
          label={words.choose}
          value={agent}
          options={agents.map(({ name, dead }) => ({ value: name, label: `${name} (${dead})` }))}
          onChange={onAgent}
        />
        <FilterLine
          label={words.filter}
          placeholder={words.filterHint}
          keys={KEYS}
          value={filter}
          onChange={onFilter}
        />
      </Toolbar>
      {letters.error && letters.rows.length > 0 && (
        <Failure error={letters.error} inline onRetry={letters.refresh} />
      )}
      {letters.loading ? (
        <Loading />
      ) : letters.error && letters.rows.length === 0 ? (
        <Failure error={letters.error} onRetry={letters.refresh} />
      ) : (
        <Table
          label={words.label(agent)}
          columns={COLUMNS}
          rows={rows}
          rowKey={idOf}
          selected={selected}
          onSelect={onSelect}
          chosen={chosen}
          onChoose={setChosen}
          onEnd={letters.loadMore}
          hold={false}
          empty={
            letters.rows.length === 0 ? (
              <Empty title={words.emptyTitle(agent)} icon="ok">
                {words.emptyText}
              </Empty>
            ) : (
              <Empty
                title={words.noneFit}
                action={<Button onClick={() => onFilter("")}>{words.clear}</Button>}
              >
                {words.noneFitText}
              </Empty>
            )
          }
        />
      )}
      {plan && (
        <ReplayDialog
          plan={plan}
          onClose={() => setPlan(undefined)}
          onDone={() => {
            setChosen(NONE);
            letters.refresh();
          }}
        />
      )}
    </>
  );
}

function fieldsOf({ failure, task, attempts, replay_id, id }: DeadLetter): Readonly<Record<string, unknown>> {
  return {
    id,
    class: failure.class,
    message: failure.message,
    kind: failure.kind,
    type: task?.artifacts.map(({ type }) => type).join(" ") ?? "",
    correlation: task?.artifacts[0]?.correlation_id ?? "",
    attempts,
    replayed: replay_id === "" ? "no" : "yes",
  };
}
