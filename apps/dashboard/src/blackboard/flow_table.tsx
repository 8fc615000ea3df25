import { useMemo } from "react";
import { countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { boardWords } from "../strings/blackboard.ts";
import { agentState, agentStateWord } from "./agent_state.ts";
import type { FlowEdge, FlowGraph, FlowNode } from "./flow_graph.ts";

const words = boardWords.flow;

interface FlowRow extends FlowEdge {
  readonly source: FlowNode | undefined;
  readonly target: FlowNode | undefined;
}

const idOf = ({ id }: FlowRow) => id;

const COLUMNS: readonly Column<FlowRow>[] = [
  { id: "from", head: words.from, cell: ({ source }) => <NodeName node={source} /> },
  {
    id: "kind",
    head: words.relation,
    width: 110,
    wideOnly: true,
    cell: ({ kind }) => <span className="quiet">{kind === "consumes" ? words.goesTo : words.produces}</span>,
  },
  { id: "to", head: words.to, cell: ({ target }) => <NodeName node={target} /> },
  {
    id: "state",
    head: words.state,
    width: 130,
    wideOnly: true,
    cell: ({ source, target }) => <AgentStateOf node={source?.kind === "agent" ? source : target} />,
  },
  { id: "count", head: words.count, align: "end", width: 80, cell: ({ count }) => countText(count) },
];

/** The graph, said in rows: the same facts without the picture. */
export function FlowTable({
  graph,
  onSelect,
}: {
  readonly graph: FlowGraph;
  readonly onSelect: (node: FlowNode | undefined) => void;
}) {
  const rows = useMemo(() => {
    const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
    return graph.edges.map(
      (edge): FlowRow => ({
        ...edge,
        source: nodes.get(edge.from),
        target: nodes.get(edge.to),
      }),
    );
  }, [graph]);
  return (
    <Table
      label={words.tableLabel}
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
  return <span className="quiet">{words.publisher}</span>;
}

function AgentStateOf({ node }: { readonly node: FlowNode | undefined }) {
  if (node?.kind !== "agent" || !node.agent) return <span className="quiet">–</span>;
  const { state } = node.agent;
  return <StateBadge state={agentState(state)} word={agentStateWord(state)} />;
}
