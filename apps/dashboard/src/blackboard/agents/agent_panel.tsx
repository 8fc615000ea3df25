import { links } from "../../router.ts";
import { Empty } from "../../ui/feedback/notices.tsx";
import { countText } from "../../ui/format/numbers.ts";
import { DetailPanel, Facts, Section, TextLink } from "../../ui/panel/detail_panel.tsx";
import { ArtifactList } from "../artifact_panel.tsx";
import type { Agent, Artifact } from "../board_types.ts";
import { AgentState } from "./agent_state.tsx";

const MAX_LISTED = 12;
const STATE_HELP: Readonly<Record<string, string>> = {
  running: "Takes tasks.",
  paused: "Takes no tasks on any server until it is resumed.",
  open: "After five failures in a row it takes no tasks for a while, then tries one.",
  half_open: "Tries one task. If it succeeds, the breaker closes.",
};

export interface AgentPanelProps {
  readonly name: string;
  readonly agent: Agent | undefined;
  /** Newest first. */
  readonly artifacts: readonly Artifact[];
  readonly onClose: () => void;
}

/** One agent: its state, its counts, and what it published last. */
export function AgentPanel({ name, agent, artifacts, onClose }: AgentPanelProps) {
  const published = artifacts.filter(({ produced_by }) => produced_by === `agent:${name}`);
  return (
    <DetailPanel label="Agent" title={name} onClose={onClose}>
      {agent ? <AgentFacts agent={agent} /> : <Empty title="Not an agent of this app" />}
      <Section title="Recently published">
        <ArtifactList artifacts={published.slice(0, MAX_LISTED)} />
      </Section>
    </DetailPanel>
  );
}

function AgentFacts({ agent }: { readonly agent: Agent }) {
  const { name, state, dead } = agent;
  return (
    <>
      <p className="agent-state">
        <AgentState state={state} />
        <span className="quiet">{STATE_HELP[state]}</span>
      </p>
      <Facts
        facts={[
          ["Consumes", agent.consumes.join(", ")],
          ["Queued", countText(agent.waiting)],
          ["Running", countText(agent.running)],
          ["Done", countText(agent.done)],
          ["Retried", countText(agent.retried)],
          [
            "Dead letters",
            <a
              key="dead"
              className={dead > 0 ? "text-link failed" : "text-link"}
              href={links.deadLetters(name)}
            >
              {countText(dead)}
            </a>,
          ],
          [
            "Lag",
            <TextLink key="lag" href={links.lag()}>
              Show lag
            </TextLink>,
          ],
        ]}
      />
    </>
  );
}
