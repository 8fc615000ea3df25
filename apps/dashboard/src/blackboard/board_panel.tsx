import { setParams, useParam } from "../router.ts";
import { AgentPanel } from "./agent_panel.tsx";
import { ArtifactPanel } from "./artifact_panel.tsx";
import { LetterPanel } from "./letter_panel.tsx";
import { TypePanel } from "./type_panel.tsx";
import type { BoardNow } from "./use_board.ts";

/** The details of what the address names: an artifact, a dead letter, an agent, or a type. */
export function BoardPanel({ tab, board }: { readonly tab: string; readonly board: BoardNow }) {
  const [artifact] = useParam("artifact");
  const [letter] = useParam("letter");
  const [of] = useParam("of");
  const [agent] = useParam("agent");
  const [type] = useParam("type");
  const artifacts = board.artifacts.data ?? [];
  const close = () => {
    // On the dead letters the agent is whose letters are listed, not what is looked at.
    const keepsAgent = tab === "dead";
    setParams({
      artifact: "",
      letter: "",
      of: "",
      bar: "",
      type: "",
      ...(!keepsAgent && { agent: "", tab }),
    });
  };

  if (artifact !== undefined) return <ArtifactPanel key={artifact} id={artifact} onClose={close} />;
  const owner = of ?? agent;
  if (letter !== undefined && owner !== undefined)
    return <LetterPanel key={letter} agent={owner} id={letter} onClose={close} />;
  if (type !== undefined) return <TypePanel type={type} artifacts={artifacts} onClose={close} />;
  if (agent !== undefined && (tab === "agents" || tab === "flow"))
    return (
      <AgentPanel
        name={agent}
        agent={board.agents.data?.find(({ name }) => name === agent)}
        artifacts={artifacts}
        onClose={close}
      />
    );
  return null;
}
