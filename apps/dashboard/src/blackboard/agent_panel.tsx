import { Ago } from "../parts/ago.tsx";
import { DetailPanel, Facts, Section } from "../parts/detail_panel.tsx";
import { countText } from "../parts/numbers.ts";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty } from "../parts/states.tsx";
import { hrefTo, links } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import { agentState, agentStateWord } from "./agent_state.ts";
import type { Artifact } from "./board_types.ts";
import type { FlowAgent } from "./flow_graph.ts";

const words = boardWords.agents;
const RECENT = 12;

export interface AgentPanelProps {
  readonly name: string;
  readonly agent: FlowAgent | undefined;
  /** Newest first. */
  readonly artifacts: readonly Artifact[];
  readonly onClose: () => void;
}

/** One agent: how it stands, and what it published last. */
export function AgentPanel({ name, agent, artifacts, onClose }: AgentPanelProps) {
  const made = artifacts.filter(({ produced_by }) => produced_by === `agent:${name}`).slice(0, RECENT);
  return (
    <DetailPanel label={words.name} title={name} onClose={onClose}>
      {agent ? <AgentFacts agent={agent} /> : <Empty title={boardWords.flow.elsewhere} />}
      <Section title={words.recent}>
        {made.length === 0 ? (
          <p className="quiet">{words.nothingRecent}</p>
        ) : (
          <ArtifactList artifacts={made} />
        )}
      </Section>
    </DetailPanel>
  );
}

function AgentFacts({ agent }: { readonly agent: FlowAgent }) {
  const { name, state, dead } = agent;
  return (
    <>
      <p className="agent-state">
        <StateBadge state={agentState(state)} word={agentStateWord(state)} />
        <span className="quiet">{words.stateHelp[state]}</span>
      </p>
      <Facts
        facts={[
          { name: words.consumes, value: agent.consumes.join(", ") },
          { name: words.waiting, value: countText(agent.waiting) },
          { name: words.running, value: countText(agent.running) },
          { name: words.done, value: countText(agent.done) },
          { name: words.retried, value: countText(agent.retried) },
          {
            name: words.dead,
            value: (
              <a className={dead > 0 ? "text-link failed" : "text-link"} href={links.deadLetters(name)}>
                {countText(dead)}
              </a>
            ),
          },
          {
            name: boardWords.lag.lag,
            value: (
              <a className="text-link" href={hrefTo("blackboard", { tab: "lag" })}>
                {words.lag}
              </a>
            ),
          },
        ]}
      />
    </>
  );
}

/** Artifacts as short lines that lead to each. */
export function ArtifactList({ artifacts }: { readonly artifacts: readonly Artifact[] }) {
  return (
    <ul>
      {artifacts.map(({ id, type, created_at, correlation_id }) => (
        <li key={id}>
          <a className="artifact-link" href={links.artifact(id)}>
            <strong>{type}</strong>
            <span className="mono quiet">{correlation_id || id}</span>
            <Ago at={created_at} />
          </a>
        </li>
      ))}
    </ul>
  );
}
