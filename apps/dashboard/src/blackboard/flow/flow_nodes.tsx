import { Handle, type Node, type NodeProps, Position } from "@xyflow/react";
import { Icon } from "../../ui/controls/icons.tsx";
import { countText } from "../../ui/format/numbers.ts";
import { AgentState, agentState } from "../agents/agent_state.tsx";
import type { AgentNode, PublisherNode, TypeNode } from "./flow_graph.ts";

export type AgentFlowNode = Node<{ readonly node: AgentNode }, "agent">;
export type TypeFlowNode = Node<{ readonly node: TypeNode }, "type">;
export type PublisherFlowNode = Node<{ readonly node: PublisherNode }, "publisher">;
export type BoardFlowNode = AgentFlowNode | TypeFlowNode | PublisherFlowNode;

function Ends() {
  return (
    <>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </>
  );
}

function AgentView({ data: { node } }: NodeProps<AgentFlowNode>) {
  const { agent, name } = node;
  return (
    <div className={`flow-node flow-agent ${agent ? agentState(agent.state) : ""}`}>
      <Ends />
      <strong>{name}</strong>
      {agent ? (
        <>
          <AgentState state={agent.state} />
          <span className="flow-figures">
            <span>{countText(agent.done)} done</span>
            <span>{countText(agent.waiting)} queued</span>
            {agent.dead > 0 ? (
              <span className="failed">{countText(agent.dead)} dead</span>
            ) : (
              <span>{countText(agent.running)} running</span>
            )}
          </span>
        </>
      ) : (
        <span className="quiet">Not an agent of this app</span>
      )}
    </div>
  );
}

function TypeView({ data: { node } }: NodeProps<TypeFlowNode>) {
  return (
    <div className="flow-node flow-type">
      <Ends />
      <strong>{node.name}</strong>
    </div>
  );
}

function PublisherView() {
  return (
    <div className="flow-node flow-publisher">
      <Ends />
      <Icon name="conversations" size={14} />
      <span>Publishers</span>
    </div>
  );
}

/** The component of each kind of node. */
export const flowNodeTypes = { agent: AgentView, type: TypeView, publisher: PublisherView };
