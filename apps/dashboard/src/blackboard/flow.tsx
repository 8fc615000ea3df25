import { useKhala } from "@khala/client/react";
import { useMemo, useState } from "react";
import { Answered } from "../parts/answered.tsx";
import { asFailure } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { useNarrow } from "../parts/media.ts";
import { Empty, Failure, type FailureLike } from "../parts/states.tsx";
import { Toolbar } from "../parts/toolbar.tsx";
import { setParams, useParam } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import type { Artifact } from "./board_types.ts";
import { type FlowAgent, type FlowNode, flowGraph } from "./flow_graph.ts";
import { FlowTable } from "./flow_table.tsx";
import { FlowView } from "./flow_view.tsx";
import type { BoardNow } from "./use_board.ts";

const words = boardWords.flow;

/** Who makes what for whom, as a graph or as a table. */
export function Flow({ board: { agents, artifacts } }: { readonly board: BoardNow }) {
  return (
    <Answered asked={agents}>
      {(known) => (
        <Answered asked={artifacts}>{(recent) => <FlowOf agents={known} artifacts={recent} />}</Answered>
      )}
    </Answered>
  );
}

interface FlowOfProps {
  readonly agents: readonly FlowAgent[];
  readonly artifacts: readonly Artifact[];
}

function FlowOf({ agents, artifacts }: FlowOfProps) {
  const graph = useMemo(() => flowGraph(agents, artifacts), [agents, artifacts]);
  const narrow = useNarrow();
  const [chosenView, setView] = useParam("view");
  const [agent] = useParam("agent");
  const [type] = useParam("type");
  const view = chosenView ?? (narrow ? "table" : "graph");
  const selected = agent !== undefined ? `agent:${agent}` : type !== undefined ? `type:${type}` : undefined;
  const select = (node: FlowNode | undefined) => {
    const of = { agent: "", type: "", artifact: "", tab: "flow" };
    if (node?.kind === "agent") setParams({ ...of, agent: node.name });
    else if (node?.kind === "type") setParams({ ...of, type: node.name });
    else if (selected !== undefined) setParams(of);
  };

  if (graph.nodes.length === 0)
    return (
      <Empty title={boardWords.agents.emptyTitle} icon="blackboard">
        {boardWords.agents.emptyText}
      </Empty>
    );
  return (
    <>
      <Toolbar
        label={words.view}
        end={
          <span className="segments" role="group" aria-label={words.view}>
            {(["graph", "table"] as const).map((name) => (
              <Button
                key={name}
                kind="bare"
                aria-pressed={view === name}
                onClick={() => setView(name, { replace: true })}
              >
                {words[name]}
              </Button>
            ))}
          </span>
        }
      >
        {artifacts.length === 0 ? (
          <FirstArtifact />
        ) : (
          <span className="quiet">{words.window(artifacts.length)}</span>
        )}
      </Toolbar>
      {view === "table" ? (
        <FlowTable graph={graph} onSelect={select} />
      ) : (
        <FlowView graph={graph} selected={selected} onSelect={select} />
      )}
    </>
  );
}

/** The board is empty: one click puts something on it. */
function FirstArtifact() {
  const { board } = useKhala();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<FailureLike>();
  const publish = async () => {
    setBusy(true);
    setError(undefined);
    try {
      const correlation_id = `otters-${Date.now().toString(36)}`;
      await board.publish({ type: "Topic", payload: { topic: "Otters" }, correlation_id });
    } catch (failure) {
      setError(asFailure(failure));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <span className="flow-first">{boardWords.empty.text}</span>
      <Button kind="primary" busy={busy} onClick={publish}>
        {boardWords.empty.action}
      </Button>
      {error && <Failure error={error} inline />}
    </>
  );
}
