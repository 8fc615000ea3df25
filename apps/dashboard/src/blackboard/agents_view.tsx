import { useCallback, useMemo } from "react";
import { Button } from "../parts/button.tsx";
import { useNarrow } from "../parts/media.ts";
import { countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty } from "../parts/states.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { links } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { agentState, agentStateWord } from "./agent_state.ts";
import type { FlowAgent } from "./flow_graph.ts";

const words = boardWords.agents;
const nameOf = ({ name }: FlowAgent) => name;

export interface AgentsViewProps {
  readonly agents: readonly FlowAgent[];
  readonly selected: string | undefined;
  readonly onSelect: (name: string | undefined) => void;
  /** The agent whose state is being changed. */
  readonly changing: string | undefined;
  readonly onPause: (name: string) => void;
  readonly onResume: (name: string) => void;
  readonly onCancel: (name: string) => void;
}

/** The agents, how each stands, and what can be done with it. */
export function AgentsView(props: AgentsViewProps) {
  const { agents, selected, onSelect, changing, onPause, onResume, onCancel } = props;
  const isNarrow = useNarrow();
  const columns = useMemo((): readonly Column<FlowAgent>[] => {
    /** On a phone the icon has to do; the whole text is in its label. */
    const buttons = { width: isNarrow ? 32 : 84, text: (text: string) => (isNarrow ? undefined : text) };
    const figure = (id: "waiting" | "running" | "done" | "retried", wideOnly = false): Column<FlowAgent> => ({
      id,
      head: words[id],
      align: "end",
      width: 76,
      wideOnly,
      cell: (agent) => countText(agent[id]),
    });
    return [
      {
        id: "name",
        head: words.name,
        width: "minmax(72px, 1fr)",
        cell: ({ name }) => <strong>{name}</strong>,
      },
      {
        id: "state",
        head: words.state,
        width: isNarrow ? 104 : 116,
        cell: ({ state }) => <StateBadge state={agentState(state)} word={agentStateWord(state)} />,
      },
      {
        id: "dead",
        head: words.dead,
        align: "end",
        width: isNarrow ? 44 : 56,
        cell: ({ name, dead }) =>
          dead === 0 ? (
            countText(dead)
          ) : (
            <a className="text-link failed" href={links.deadLetters(name)}>
              {countText(dead)}
            </a>
          ),
      },
      {
        id: "consumes",
        head: words.consumes,
        width: "minmax(120px, 1.4fr)",
        wideOnly: true,
        cell: ({ consumes }) => consumes.join(", "),
      },
      figure("waiting", true),
      figure("running", true),
      figure("done", true),
      figure("retried", true),
      {
        id: "action",
        head: isNarrow ? "" : words.action,
        width: buttons.width,
        cell: ({ name, state }) =>
          state === "paused" ? (
            <Button
              kind="bare"
              icon="play"
              busy={changing === name}
              aria-label={words.resumeOf(name)}
              onClick={() => onResume(name)}
            >
              {buttons.text(words.resume)}
            </Button>
          ) : (
            <Button
              kind="bare"
              icon="pause"
              busy={changing === name}
              aria-label={words.pauseOf(name)}
              onClick={() => onPause(name)}
            >
              {buttons.text(words.pause)}
            </Button>
          ),
      },
      {
        id: "cancel",
        head: isNarrow ? "" : words.cancel,
        width: buttons.width,
        wideOnly: true,
        cell: ({ name }) => (
          <Button
            kind="bare"
            icon="stop"
            busy={changing === name}
            title={words.cancelHint}
            aria-label={words.cancelOf(name)}
            onClick={() => onCancel(name)}
          >
            {buttons.text(words.cancel)}
          </Button>
        ),
      },
    ];
  }, [changing, isNarrow, onPause, onResume, onCancel]);
  const select = useCallback((key: string | undefined) => onSelect(key), [onSelect]);

  return (
    <>
      <Table
        label={words.label}
        columns={columns}
        rows={agents}
        rowKey={nameOf}
        selected={selected}
        onSelect={select}
        empty={
          <Empty title={words.emptyTitle} icon="blackboard">
            {words.emptyText}
          </Empty>
        }
      />
      <p className="room-note">{words.since}</p>
    </>
  );
}
