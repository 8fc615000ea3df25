import { setParams, useParam } from "../router.ts";
import { Tabs } from "../ui/controls/tabs.tsx";
import { Fetched } from "../ui/feedback/fetched.tsx";
import { WithPanel } from "../ui/panel/detail_panel.tsx";
import { AgentPanel } from "./agents/agent_panel.tsx";
import { Agents } from "./agents/agents.tsx";
import { Approvals, useApprovals } from "./approvals.tsx";
import { ArtifactPanel, TypePanel } from "./artifact_panel.tsx";
import { Correlation } from "./correlation/correlation.tsx";
import { DeadLetters } from "./dead_letters/dead_letters.tsx";
import { LetterPanel } from "./dead_letters/letter_panel.tsx";
import { Flow } from "./flow/flow.tsx";
import { Lag } from "./lag.tsx";
import { type BoardState, useBoardState } from "./use_board.ts";
import "./blackboard.css";

const NOTHING_SELECTED = {
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

/** The Blackboard page: flow, timeline of a correlation, agents, dead letters, lag and approvals. */
export default function BlackboardPage() {
  const board = useBoardState();
  const tab = useTab();
  const approvals = useApprovals();
  const dead = board.agents.data?.reduce((sum, agent) => sum + agent.dead, 0);
  const pending = approvals.data?.length;
  return (
    <WithPanel panel={<BoardPanel tab={tab} board={board} />}>
      <Tabs
        label="Blackboard views"
        selected={tab}
        onSelect={(id) => setParams({ ...NOTHING_SELECTED, tab: id === "flow" ? "" : id })}
        tabs={[
          { id: "flow", label: "Flow", content: <Flow board={board} /> },
          { id: "timeline", label: "Timeline", content: <Correlation board={board} /> },
          { id: "agents", label: "Agents", content: <Agents agents={board.agents} /> },
          {
            id: "approvals",
            label: "Approvals",
            ...(pending && { count: pending }),
            content: (
              <Fetched state={approvals}>
                {(data) => <Approvals approvals={data} onDecided={approvals.refetch} />}
              </Fetched>
            ),
          },
          {
            id: "dead",
            label: "Dead letters",
            ...(dead && { count: dead }),
            content: <DeadLetters agents={board.agents} />,
          },
          { id: "lag", label: "Lag", content: <Lag /> },
        ]}
      />
    </WithPanel>
  );
}

/** The tab of the address; a link to an item needs none. */
function useTab(): string {
  const [tab] = useParam("tab");
  const [correlation] = useParam("correlation");
  const [agent] = useParam("agent");
  return tab ?? (correlation !== undefined ? "timeline" : agent !== undefined ? "agents" : "flow");
}

/** The details of the selected artifact, dead letter, agent or type. */
function BoardPanel({ tab, board }: { readonly tab: string; readonly board: BoardState }) {
  const [artifact] = useParam("artifact");
  const [letter] = useParam("letter");
  const [of] = useParam("of");
  const [agent] = useParam("agent");
  const [type] = useParam("type");
  const artifacts = board.artifacts.data ?? [];
  const close = () =>
    setParams({
      artifact: "",
      letter: "",
      of: "",
      bar: "",
      type: "",
      // On the dead letters tab the agent is a filter, not what is shown in the panel.
      ...(tab !== "dead" && { agent: "", tab }),
    });

  if (artifact !== undefined) return <ArtifactPanel key={artifact} id={artifact} onClose={close} />;
  const owner = of ?? agent;
  if (letter !== undefined && owner !== undefined)
    return <LetterPanel key={letter} agent={owner} id={letter} onClose={close} />;
  if (type !== undefined) return <TypePanel type={type} artifacts={artifacts} onClose={close} />;
  if (agent === undefined || (tab !== "agents" && tab !== "flow")) return null;
  const found = board.agents.data?.find(({ name }) => name === agent);
  return <AgentPanel name={agent} agent={found} artifacts={artifacts} onClose={close} />;
}
