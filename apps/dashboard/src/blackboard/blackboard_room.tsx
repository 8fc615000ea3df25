import { useKhala } from "@khala/client/react";
import { useMemo } from "react";
import { Answered } from "../parts/answered.tsx";
import { useAsk } from "../parts/asking.ts";
import { WithPanel } from "../parts/detail_panel.tsx";
import { Tabs } from "../parts/tabs.tsx";
import { setParams, useParam } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { Agents } from "./agents.tsx";
import { ApprovalsView } from "./approvals_view.tsx";
import { BoardPanel } from "./board_panel.tsx";
import { readTask } from "./board_types.ts";
import { CorrelationChooser } from "./correlation_chooser.tsx";
import { CorrelationView } from "./correlation_view.tsx";
import { DeadLetters } from "./dead_letters.tsx";
import { Flow } from "./flow.tsx";
import { LagView } from "./lag_view.tsx";
import { type BoardNow, useBoardNow, useLag } from "./use_board.ts";
import "./blackboard.css";

const words = boardWords.tabs;

/** The Blackboard room: the flow, what came of a request, agents, dead letters, lag and approvals. */
export default function BlackboardRoom() {
  const board = useBoardNow();
  const tab = useTab();
  const approvals = useApprovals();
  const dead = board.agents.data?.reduce((sum, agent) => sum + agent.dead, 0);
  return (
    <WithPanel panel={<BoardPanel tab={tab} board={board} />}>
      <Tabs
        label={boardWords.tabsLabel}
        selected={tab}
        onSelect={(id) => setParams({ ...NOTHING_CHOSEN, tab: id === "flow" ? "" : id })}
        tabs={[
          { id: "flow", label: words.flow, content: <Flow board={board} /> },
          { id: "timeline", label: words.timeline, content: <Correlation board={board} /> },
          { id: "agents", label: words.agents, content: <Agents board={board} /> },
          {
            id: "dead",
            label: words.dead,
            ...(dead && { count: dead }),
            content: <DeadLetters board={board} />,
          },
          { id: "lag", label: words.lag, content: <Lag /> },
          {
            id: "approvals",
            label: words.approvals,
            ...(approvals.asked.data?.length && { count: approvals.asked.data.length }),
            content: (
              <Answered asked={approvals.asked}>
                {(data) => <ApprovalsView approvals={data} onDecide={approvals.decide} />}
              </Answered>
            ),
          },
        ]}
      />
    </WithPanel>
  );
}

const NOTHING_CHOSEN = {
  agent: "",
  artifact: "",
  correlation: "",
  letter: "",
  of: "",
  bar: "",
  type: "",
  q: "",
  view: "",
};

/** The tab of the address; a link to a thing needs none. */
function useTab(): string {
  const [tab] = useParam("tab");
  const [correlation] = useParam("correlation");
  const [agent] = useParam("agent");
  return tab ?? (correlation !== undefined ? "timeline" : agent !== undefined ? "agents" : "flow");
}

function Correlation({ board }: { readonly board: BoardNow }) {
  const [id] = useParam("correlation");
  const [bar] = useParam("bar");
  const names = useMemo(() => board.agents.data?.map(({ name }) => name) ?? [], [board.agents.data]);
  if (id === undefined)
    return <Answered asked={board.artifacts}>{(data) => <CorrelationChooser artifacts={data} />}</Answered>;
  return (
    <Answered asked={board.agents}>
      {() => <CorrelationView key={id} id={id} agents={names} selected={bar} />}
    </Answered>
  );
}

function Lag() {
  const lag = useLag();
  return (
    <Answered asked={lag}>{(data) => <LagView partitions={data} isOld={lag.error !== undefined} />}</Answered>
  );
}

function useApprovals() {
  const { board } = useKhala();
  const asked = useAsk(
    "approvals",
    async () =>
      (await board.approvals()).approvals?.map(({ id = "", task = {}, created_at = "" }) => ({
        id,
        created_at,
        task: readTask(task),
      })) ?? [],
    { everyMs: 3_000 },
  );
  const decide = async (id: string, decision: { approved: boolean; reason?: string }) => {
    await board.decide(id, decision);
    asked.again();
  };
  return { asked, decide };
}
