import { Handle, type Node, type NodeProps, Position } from "@xyflow/react";
import { Icon } from "../parts/icons.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { boardWords } from "../strings/blackboard.ts";
import { agentState, agentStateWord } from "./agent_state.ts";
import type { AgentNode, PublisherNode, TypeNode } from "./flow_graph.ts";

export type AgentFlowNode = Node<{ readonly node: AgentNode }, "agent">;
export type TypeFlowNode = Node<{ readonly node: TypeNode }, "type">;
export type PublisherFlowNode = Node<{ readonly node: PublisherNode }, "publisher">;
export type BoardFlowNode = AgentFlowNode | TypeFlowNode | PublisherFlowNode;

const words = boardWords.flow;

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
          <StateBadge state={agentState(agent.state)} word={agentStateWord(agent.state)} />
          <span className="flow-figures">
            <span>{words.waiting(agent.waiting)}</span>
            {agent.dead > 0 ? (
              <span className="failed">{words.dead(agent.dead)}</span>
            ) : (
              <span>{words.running(agent.running)}</span>
            )}
          </span>
        </>
      ) : (
        <span className="quiet">{words.elsewhere}</span>
      )}
    </div>
  );
}

function TypeView({ data: { node } }: NodeProps<TypeFlowNode>) {
  return (
    <div className="flow-node flow-type">
      <Ends />
      <strong>{node.name}</strong>
      <span className="quiet">{words.artifacts(node.count)}</span>
    </div>
  );
}

function PublisherView() {
  return (
    <div className="flow-node flow-publisher">
      <Ends />
      <Icon name="conversations" size={14} />
      <span>{words.publisher}</span>
    </div>
  );
}

/** How each kind of node is drawn. */
export const flowNodeTypes = { agent: AgentView, type: TypeView, publisher: PublisherView };
