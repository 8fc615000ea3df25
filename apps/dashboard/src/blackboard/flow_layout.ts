import dagre from "@dagrejs/dagre";
import type { FlowGraph } from "./flow_graph.ts";

export interface Place {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** How large the node of each kind is drawn: the layout and the styles must agree. */
const NODE_SIZES = {
  agent: { width: 160, height: 74 },
  type: { width: 104, height: 44 },
  publisher: { width: 112, height: 44 },
} as const;

/** Where each node is drawn, left to right along the flow, by its top left corner. */
export function flowLayout({ nodes, edges }: FlowGraph): ReadonlyMap<string, Place> {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 28, ranksep: 36, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, kind } of nodes) graph.setNode(id, { ...NODE_SIZES[kind] });
  for (const { from, to } of edges) graph.setEdge(from, to);
  dagre.layout(graph);
  return new Map(
    nodes.map(({ id, kind }) => {
      const { x, y } = graph.node(id);
      const { width, height } = NODE_SIZES[kind];
      return [id, { x: x - width / 2, y: y - height / 2, width, height }];
    }),
  );
}
