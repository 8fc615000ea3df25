import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useMemo } from "react";
import { useApp } from "../../data/app.ts";
import { hrefTo, setParams, useParam } from "../../router.ts";
import { Button } from "../../ui/controls/button.tsx";
import { Toolbar } from "../../ui/controls/toolbar.tsx";
import { Fetched } from "../../ui/feedback/fetched.tsx";
import { Empty, Failure } from "../../ui/feedback/notices.tsx";
import { useNarrow } from "../../ui/hooks.ts";
import { TextLink } from "../../ui/panel/detail_panel.tsx";
import type { Agent, Artifact } from "../board_types.ts";
import type { BoardState } from "../use_board.ts";
import { type FlowNode, flowGraph } from "./flow_graph.ts";
import { FlowTable } from "./flow_table.tsx";
import { FlowView } from "./flow_view.tsx";

/** Who produces what for whom, as a graph or as a table. */
export function Flow({ board: { agents, artifacts } }: { readonly board: BoardState }) {
  return (
    <Fetched state={agents}>
      {(known) => (
        <Fetched state={artifacts}>{(recent) => <FlowOf agents={known} artifacts={recent} />}</Fetched>
      )}
    </Fetched>
  );
}

interface FlowOfProps {
  readonly agents: readonly Agent[];
  readonly artifacts: readonly Artifact[];
}

function FlowOf({ agents, artifacts }: FlowOfProps) {
  const graph = useMemo(() => flowGraph(agents, artifacts), [agents, artifacts]);
  const isNarrow = useNarrow();
  const [chosenView, setView] = useParam("view");
  const [agent] = useParam("agent");
  const [type] = useParam("type");
  const view = chosenView ?? (isNarrow ? "table" : "graph");
  const selected = agent !== undefined ? `agent:${agent}` : type !== undefined ? `type:${type}` : undefined;
  const select = (node: FlowNode | undefined) => {
    const none = { agent: "", type: "", artifact: "", tab: "flow" };
    if (node?.kind === "agent") setParams({ ...none, agent: node.name });
    else if (node?.kind === "type") setParams({ ...none, type: node.name });
    else if (selected !== undefined) setParams(none);
  };

  if (graph.nodes.length === 0)
    return (
      <Empty title="No agents" icon="blackboard">
        Declare one with agent(name, {"{ consumes, run }"}) and restart the server.
      </Empty>
    );
  return (
    <>
      <Toolbar
        label="Flow"
        end={
          <span className="segments" role="group" aria-label="View">
            {(["graph", "table"] as const).map((name) => (
              <Button
                key={name}
                kind="bare"
                aria-pressed={view === name}
                onClick={() => setView(name, { replace: true })}
              >
                {name === "graph" ? "Graph" : "Table"}
              </Button>
            ))}
          </span>
        }
      >
        {artifacts.length === 0 && agents.every(({ done }) => done === 0) ? (
          <FirstArtifact />
        ) : (
          <span className="quiet">
            Tasks done and artifacts published, across all servers since installation.
          </span>
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

/** Publishes something to the empty board of the demo; another app has its own types. */
function FirstArtifact() {
  const { board } = useKhala();
  const { isDemo } = useApp();
  const publish = useMutation({
    mutationFn: () => {
      const correlation_id = `otters-${Date.now().toString(36)}`;
      return board.publish({ type: "Topic", payload: { topic: "Otters" }, correlation_id });
    },
  });
  if (!isDemo)
    return (
      <span className="quiet">
        The board is empty. <TextLink href={hrefTo("home")}>Home</TextLink> has a request that publishes the
        first artifact.
      </span>
    );
  return (
    <>
      <span className="flow-first">The board is empty. Publish an artifact to see it move.</span>
      <Button kind="primary" busy={publish.isPending} onClick={() => publish.mutate()}>
        Publish a topic
      </Button>
      {publish.error && <Failure error={publish.error} inline />}
    </>
  );
}
