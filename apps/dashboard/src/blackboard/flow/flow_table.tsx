import { useMemo } from "react";
import { countText } from "../../ui/format/numbers.ts";
import type { Column } from "../../ui/table/columns.ts";
import { Table } from "../../ui/table/table.tsx";
import { AgentState } from "../agents/agent_state.tsx";
import type { FlowEdge, FlowGraph, FlowNode } from "./flow_graph.ts";

interface FlowRow extends FlowEdge {
  readonly source: FlowNode | undefined;
  readonly target: FlowNode | undefined;
}

const idOf = ({ id }: FlowRow) => id;

const COLUMNS: readonly Column<FlowRow>[] = [
  { head: "From", cell: ({ source }) => <NodeName node={source} /> },
  {
    head: "Relation",
    width: 110,
    wideOnly: true,
    cell: ({ kind }) => <span className="quiet">{kind === "consumes" ? "consumed by" : "publishes"}</span>,
  },
  { head: "To", cell: ({ target }) => <NodeName node={target} /> },
  {
    head: "Agent",
    width: 130,
    wideOnly: true,
    cell: ({ source, target }) => <StateOf node={source?.kind === "agent" ? source : target} />,
  },
  {
    head: "Done",
    align: "end",
    width: 80,
    cell: ({ done }) => (done === undefined ? <span className="quiet">–</span> : countText(done)),
  },
];

interface FlowTableProps {
  readonly graph: FlowGraph;
  readonly onSelect: (node: FlowNode | undefined) => void;
}

/** The graph as rows, for those who cannot see it. */
export function FlowTable({ graph, onSelect }: FlowTableProps) {
  const rows = useMemo(() => {
    const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    return graph.edges.map((edge): FlowRow => {
      return { ...edge, source: nodes.get(edge.from), target: nodes.get(edge.to) };
    });
  }, [graph]);
  return (
    <Table
      label="Flow as a table"
      columns={COLUMNS}
      rows={rows}
      rowKey={idOf}
      onSelect={(key) => {
        const row = rows.find(({ id }) => id === key);
        onSelect(row?.kind === "consumes" ? row.target : row?.source);
      }}
    />
  );
}

function NodeName({ node }: { readonly node: FlowNode | undefined }) {
  if (node?.kind === "agent") return <strong>{node.name}</strong>;
  if (node?.kind === "type") return <span>{node.name}</span>;
  return <span className="quiet">Publishers</span>;
}

function StateOf({ node }: { readonly node: FlowNode | undefined }) {
  if (node?.kind !== "agent" || !node.agent) return <span className="quiet">–</span>;
  return <AgentState state={node.agent.state} />;
}
