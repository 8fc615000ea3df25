import { DetailPanel, Section } from "../parts/detail_panel.tsx";
import { boardWords } from "../strings/blackboard.ts";
import { ArtifactList } from "./agent_panel.tsx";
import type { Artifact } from "./board_types.ts";

const words = boardWords.type;
const SHOWN = 50;

export interface TypePanelProps {
  readonly type: string;
  /** Newest first. */
  readonly artifacts: readonly Artifact[];
  readonly onClose: () => void;
}

/** The recent artifacts of a type. */
export function TypePanel({ type, artifacts, onClose }: TypePanelProps) {
  const ofType = artifacts.filter((artifact) => artifact.type === type);
  return (
    <DetailPanel label={words.label} title={type} onClose={onClose}>
      <Section title={boardWords.flow.artifacts(ofType.length)}>
        {ofType.length === 0 ? (
          <p className="quiet">{words.none}</p>
        ) : (
          <ArtifactList artifacts={ofType.slice(0, SHOWN)} />
        )}
      </Section>
    </DetailPanel>
  );
}
