import "@xyflow/react/dist/style.css";
import dagre from "@dagrejs/dagre";
import { Controls, type Edge, MarkerType, ReactFlow, type ReactFlowInstance } from "@xyflow/react";
import { useEffect, useMemo, useRef, useState } from "react";
import { countText } from "../../ui/format/numbers.ts";
import { useWidth } from "../../ui/hooks.ts";
import { type FlowEdge, type FlowGraph, type FlowNode, flowShape } from "./flow_graph.ts";
import { type BoardFlowNode, flowNodeTypes } from "./flow_nodes.tsx";
import "./flow.css";

export interface FlowViewProps {
  readonly graph: FlowGraph;
  readonly selected: string | undefined;
  readonly onSelect: (node: FlowNode | undefined) => void;
}

/** Below this zoom it is not readable: a part of the graph is shown instead, which can be dragged. */
const MIN_ZOOM = 0.8;
/** Long enough to see where it moved. */
const CENTRE_MS = 160;
const PADDING = 0.02;
const FIT = { padding: PADDING, minZoom: MIN_ZOOM, maxZoom: 1.1 };

/** The board as a graph. Numbers change in place; the layout changes only when an agent or a type is added or removed. */
export function FlowView({ graph, selected, onSelect }: FlowViewProps) {
  const shape = flowShape(graph);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the layout depends on the shape alone, not on the numbers
  const places = useMemo(() => layout(graph), [shape]);
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
    if (!place)
      void drawn.fitView(FIT).then(() => showStart(drawn, places, frame.current?.clientWidth ?? width));
    else
      void drawn.setCenter(place.x + place.width / 2, place.y + place.height / 2, {
        zoom: Math.max(MIN_ZOOM, drawn.getZoom()),
        duration: CENTRE_MS,
      });
  }, [drawn, places, selected, width]);
  return (
    <div
      ref={frame}
      className="flow"
      role="group"
      aria-label="Agents and the types of artifacts that flow between them"
    >
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
            // Enter and space select a focused node, Escape clears the selection.
            if (change.type === "select" && change.selected) onSelect(nodeOf(graph, change.id));
            else if (change.type === "select" && change.id === selected) onSelect(undefined);
          }
        }}
        ariaLabelConfig={{
          "controls.ariaLabel": "Zoom",
          "controls.fitView.ariaLabel": "Fit to window",
          "controls.zoomIn.ariaLabel": "Zoom in",
          "controls.zoomOut.ariaLabel": "Zoom out",
        }}
      >
        <Controls showInteractive={false} position="bottom-left" fitViewOptions={{ padding: PADDING }} />
      </ReactFlow>
    </div>
  );
}

/** A graph that is broader than its frame is read from its left end, where work begins. */
function showStart(
  drawn: ReactFlowInstance<BoardFlowNode>,
  places: ReadonlyMap<string, Place>,
  width: number,
): void {
  const { y, zoom } = drawn.getViewport();
  const ends = [...places.values()].map((place) => place.x + place.width);
  if (Math.max(...ends) * zoom > width) void drawn.setViewport({ x: width * PADDING, y, zoom });
}

const nodeOf = ({ nodes }: FlowGraph, id: string) => nodes.find((node) => node.id === id);

interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The size of each kind of node: the layout and the styles must agree. */
const NODE_SIZES = {
  agent: { width: 212, height: 74 },
  type: { width: 88, height: 34 },
  publisher: { width: 104, height: 44 },
} as const;

/** A type is as wide as its name, within limits: a longer one is cut. */
function sizeOf({ kind, name }: Pick<FlowNode, "kind" | "name">): { width: number; height: number } {
  const { width, height } = NODE_SIZES[kind];
  return { width: kind === "type" ? Math.min(Math.max(width, 26 + 8 * name.length), 200) : width, height };
}

/** Where each node is drawn, left to right along the flow, by its top left corner. */
function layout({ nodes, edges }: FlowGraph): ReadonlyMap<string, Place> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 28, ranksep: 28, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, sizeOf(node));
  for (const { from, to } of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  return new Map(
    nodes.map((node) => {
      const { id } = node;
      const { x, y } = graph.node(id);
      const { width, height } = sizeOf(node);
      return [id, { x: x - width / 2, y: y - height / 2, width, height }];
    }),
  );
}

const NOWHERE: Place = { x: 0, y: 0, width: 0, height: 0 };

function flowNode(node: FlowNode, place: Place | undefined, selected: boolean): BoardFlowNode {
  const { x, y, width, height } = place ?? NOWHERE;
  const common = { id: node.id, position: { x, y }, width, height, selected, ariaLabel: describe(node) };
  return { ...common, type: node.kind, data: { node } } as BoardFlowNode;
}

function describe(node: FlowNode): string {
  if (node.kind !== "agent") return node.name || "Publishers";
  if (!node.agent) return `${node.name}, not an agent of this app`;
  const { state, done, waiting, running, dead } = node.agent;
  return `${node.name}, ${state}, ${countText(done)} done, ${countText(waiting)} queued, ${countText(running)} running, ${countText(dead)} dead`;
}

/** The more tasks an edge has led to, the broader it is. */
function flowEdge({ id, from, to, kind, done = 0 }: FlowEdge, graph: FlowGraph): Edge {
  const target = nodeOf(graph, to);
  const busy = kind === "consumes" && target?.kind === "agent" && (target.agent?.running ?? 0) > 0;
  return {
    id,
    source: from,
    target: to,
    ...(done > 0 && { label: countText(done) }),
    className: `flow-edge flow-edge-${kind}`,
    animated: busy,
    focusable: false,
    // In pixels of the graph: by default the arrow grows with the breadth of its edge.
    markerEnd: {
      type: MarkerType.ArrowClosed,
      markerUnits: "userSpaceOnUse",
      width: 22,
      height: 22,
      color: "var(--control-line)",
    },
    style: { strokeWidth: 1 + Math.min(2, Math.log10(1 + done)) },
  };
}
