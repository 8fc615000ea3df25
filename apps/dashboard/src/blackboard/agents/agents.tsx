import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { FetchState } from "../../data/fetch.ts";
import { links, useParam } from "../../router.ts";
import { Button, type ButtonProps } from "../../ui/controls/button.tsx";
import { Confirm } from "../../ui/controls/confirm.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Empty, Failure } from "../../ui/feedback/notices.tsx";
import { useToast } from "../../ui/feedback/toast.tsx";
import { countText, plural } from "../../ui/format/numbers.ts";
import { useNarrow } from "../../ui/hooks.ts";
import { type Column, numbers } from "../../ui/table/columns.ts";
import { Table } from "../../ui/table/table.tsx";
import type { Agent } from "../board_types.ts";
import { AgentState } from "./agent_state.tsx";

type Action = "pause" | "resume" | "cancel";

const nameOf = ({ name }: Agent) => name;
const DONE: Readonly<Record<Action, (name: string) => string>> = {
  pause: (name) => `${name} is paused on all servers. Running tasks continue.`,
  resume: (name) => `${name} is running again.`,
  cancel: (name) => `Queued tasks of ${name} move to the dead-letter queue. New tasks run as usual.`,
};

/** The agents: their states and counts, and the buttons to pause, resume or cancel. */
export function Agents({ agents }: { readonly agents: FetchState<readonly Agent[]> }) {
  const { board } = useKhala();
  const toast = useToast();
  const [selected, select] = useParam("agent");
  const [cancelling, setCancelling] = useState<string>();
  const change = useMutation({
    mutationFn: ({ name, action }: { readonly name: string; readonly action: Action }) =>
      ({ pause: board.pause, resume: board.resume, cancel: board.cancelAgent })[action](name),
    onSuccess(_, { name, action }) {
      agents.refetch();
      toast(DONE[action](name));
    },
  });
  const { mutate, isPending, error, variables } = change;
  const busyName = isPending ? variables.name : undefined;
  const isNarrow = useNarrow();
  const columns = useMemo(
    () =>
      columnsOf(isNarrow, busyName, (name, action) =>
        action === "cancel" ? setCancelling(name) : mutate({ name, action }),
      ),
    [isNarrow, busyName, mutate],
  );
  return (
    <Fetched state={agents}>
      {(data) => (
        <>
          {error && <Failure error={error} inline />}
          <Table
            label="Agents"
            columns={columns}
            rows={data}
            rowKey={nameOf}
            selected={selected}
            onSelect={select}
            empty={
              <Empty title="No agents" icon="blackboard">
                Declare one with agent(name, {"{ consumes, run }"}) and restart the server.
              </Empty>
            }
          />
          <p className="note">Totals across all servers since installation.</p>
          {data
            .filter(({ name }) => name === cancelling)
            .map((agent) => (
              <CancelDialog
                key={agent.name}
                agent={agent}
                onClose={() => setCancelling(undefined)}
                onConfirm={() => {
                  setCancelling(undefined);
                  mutate({ name: agent.name, action: "cancel" });
                }}
              />
            ))}
        </>
      )}
    </Fetched>
  );
}

function columnsOf(
  isNarrow: boolean,
  busyName: string | undefined,
  onAction: (name: string, action: Action) => void,
): readonly Column<Agent>[] {
  /** On a phone there is space for the icon alone; the text is in its label. */
  const button = (name: string, action: Action, text: string, label: string, props: ButtonProps) => (
    <Button
      kind="bare"
      {...props}
      busy={busyName === name}
      aria-label={label}
      onClick={() => onAction(name, action)}
    >
      {isNarrow ? undefined : text}
    </Button>
  );
  return [
    { head: "Agent", width: "minmax(72px, 1fr)", cell: ({ name }) => <strong>{name}</strong> },
    { head: "State", width: isNarrow ? 104 : 116, cell: ({ state }) => <AgentState state={state} /> },
    {
      head: "Dead",
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
      head: "Consumes",
      width: "minmax(120px, 1.4fr)",
      wideOnly: true,
      cell: ({ consumes }) => consumes.join(", "),
    },
    numbers("Queued", 76, ({ waiting }) => countText(waiting)),
    numbers("Running", 76, ({ running }) => countText(running)),
    numbers("Done", 76, ({ done }) => countText(done)),
    numbers("Retried", 76, ({ retried }) => countText(retried)),
    {
      head: isNarrow ? "" : "Action",
      width: isNarrow ? 32 : 96,
      cell: ({ name, state }) =>
        state === "paused"
          ? button(name, "resume", "Resume", `Resume ${name}`, { icon: "play" })
          : button(name, "pause", "Pause", `Pause ${name}`, { icon: "pause" }),
    },
    {
      head: "Cancel",
      width: isNarrow ? 32 : 84,
      wideOnly: true,
      cell: ({ name }) =>
        button(name, "cancel", "Cancel", `Cancel tasks of ${name}`, {
          icon: "stop",
          title: "Running tasks are cancelled. Queued tasks move to the dead-letter queue.",
        }),
    },
  ];
}

interface CancelDialogProps {
  readonly agent: Agent;
  readonly onClose: () => void;
  readonly onConfirm: () => void;
}

function CancelDialog({ agent: { name, waiting, running }, onClose, onConfirm }: CancelDialogProps) {
  const queued = `${plural(waiting, "queued task")} will move to the dead-letter queue.`;
  const cancelled = `${plural(running, "running task")} will be cancelled.`;
  return (
    <Confirm
      title={`Cancel tasks of ${name}?`}
      about={`${queued} ${running === 0 ? "No tasks are running." : cancelled} New tasks run as usual. Dead letters can be replayed.`}
      action="Cancel tasks"
      icon="stop"
      cancel="Keep tasks"
      onConfirm={onConfirm}
      onClose={onClose}
    />
  );
}
