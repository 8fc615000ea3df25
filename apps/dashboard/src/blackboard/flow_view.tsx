import "@xyflow/react/dist/style.css";
import { Controls, type Edge, MarkerType, ReactFlow, type ReactFlowInstance } from "@xyflow/react";
import { useEffect, useMemo, useRef, useState } from "react";
import { useWidth } from "../parts/width.ts";
import { boardWords } from "../strings/blackboard.ts";
import { type FlowEdge, type FlowGraph, type FlowNode, flowShape } from "./flow_graph.ts";
import { flowLayout } from "./flow_layout.ts";
import { type BoardFlowNode, flowNodeTypes } from "./flow_nodes.tsx";

const words = boardWords.flow;

export interface FlowViewProps {
  readonly graph: FlowGraph;
  readonly selected: string | undefined;
  readonly onSelect: (node: FlowNode | undefined) => void;
}

/** Smaller than this nobody can read it: rather a part of the graph, which can be dragged. */
const READABLE = 0.8;
/** Long enough to see where it went. */
const CENTRE_MS = 160;
const FIT = { padding: 0.04, minZoom: READABLE, maxZoom: 1.1 };

/** The board as a graph. Numbers change in place; it is laid out anew only when an agent or a type comes or goes. */
export function FlowView({ graph, selected, onSelect }: FlowViewProps) {
  const shape = flowShape(graph);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the shape says when the places change; the figures do not move anything
  const places = useMemo(() => flowLayout(graph), [shape]);
  const nodes = useMemo(
    () => graph.nodes.map((node) => flowNode(node, places.get(node.id), node.id === selected)),
    [graph, places, selected],
  );
  const edges = useMemo(() => graph.edges.map((edge) => flowEdge(edge, graph)), [graph]);
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const [drawn, setDrawn] = useState<ReactFlowInstance<BoardFlowNode>>();
  useEffect(() => {
    if (!drawn || width === 0) return;
    const place = selected === undefined ? undefined : places.get(selected);
    if (!place) void drawn.fitView(FIT);
    else
      void drawn.setCenter(place.x + place.width / 2, place.y + place.height / 2, {
        zoom: Math.max(READABLE, drawn.getZoom()),
        duration: CENTRE_MS,
      });
  }, [drawn, places, selected, width]);
  return (
    <div ref={frame} className="flow" role="group" aria-label={words.label}>
      <ReactFlow<BoardFlowNode>
        key={shape}
        nodes={nodes}
        edges={edges}
        nodeTypes={flowNodeTypes}
        nodesDraggable={false}
        nodesConnectable={false}
        edgesFocusable={false}
        zoomOnScroll={false}
        preventScrolling={false}
        fitView
        fitViewOptions={FIT}
        onInit={setDrawn}
        minZoom={0.3}
        maxZoom={1.6}
        onNodeClick={(_, node) => onSelect(node.data.node)}
        onNodesChange={(changes) => {
          for (const change of changes) {
            // Enter and space select a node that has the focus, Escape takes the selection back.
            if (change.type === "select" && change.selected) onSelect(nodeOf(graph, change.id));
            else if (change.type === "select" && change.id === selected) onSelect(undefined);
          }
        }}
        ariaLabelConfig={{
          "controls.ariaLabel": words.view,
          "controls.fitView.ariaLabel": words.fit,
          "controls.zoomIn.ariaLabel": words.zoomIn,
          "controls.zoomOut.ariaLabel": words.zoomOut,
        }}
      >
        <Controls showInteractive={false} position="bottom-left" fitViewOptions={{ padding: FIT.padding }} />
      </ReactFlow>
    </div>
  );
}

const nodeOf = ({ nodes }: FlowGraph, id: string) => nodes.find((node) => node.id === id);

function flowNode(
  node: FlowNode,
  place: { x: number; y: number; width: number; height: number } | undefined,
  selected: boolean,
): BoardFlowNode {
  const { x = 0, y = 0, width = 0, height = 0 } = place ?? {};
  const common = { id: node.id, position: { x, y }, width, height, selected, ariaLabel: describe(node) };
  switch (node.kind) {
    case "agent":
      return { ...common, type: node.kind, data: { node } };
    case "type":
      return { ...common, type: node.kind, data: { node } };
    case "publisher":
      return { ...common, type: node.kind, data: { node } };
  }
}

function describe(node: FlowNode): string {
  if (node.kind === "publisher") return `${words.publisher}, ${words.artifacts(node.count)}`;
  if (node.kind === "type") return `${node.name}, ${words.artifacts(node.count)}`;
  if (!node.agent) return `${node.name}, ${words.elsewhere}`;
  const { state, waiting, running, dead } = node.agent;
  return [node.name, state, words.waiting(waiting), words.running(running), words.dead(dead)].join(", ");
}

/** The more went along an edge lately, the broader it is. */
function flowEdge({ id, from, to, kind, count }: FlowEdge, graph: FlowGraph): Edge {
  const target = nodeOf(graph, to);
  const busy = kind === "consumes" && target?.kind === "agent" && (target.agent?.running ?? 0) > 0;
  return {
    id,
    source: from,
    target: to,
    ...(count > 0 && { label: count.toLocaleString("en") }),
    className: count > 0 ? `flow-edge flow-edge-${kind}` : "flow-edge flow-edge-unused",
    animated: busy,
    focusable: false,
    // In the graph's own pixels: by default the tip grows with the breadth of its edge.
    markerEnd: {
      type: MarkerType.ArrowClosed,
      markerUnits: "userSpaceOnUse",
      width: 22,
      height: 22,
      color: "var(--control-line)",
    },
    style: { strokeWidth: 1 + Math.min(2, Math.log10(1 + count)) },
  };
}
