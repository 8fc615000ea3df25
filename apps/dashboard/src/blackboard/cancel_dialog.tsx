import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { boardWords } from "../strings/blackboard.ts";
import type { FlowAgent } from "./flow_graph.ts";

const words = boardWords.cancelDialog;

export interface CancelDialogProps {
  readonly agent: FlowAgent;
  readonly onClose: () => void;
  readonly onConfirm: () => void;
}

/** Says what becomes of an agent's tasks before they are cancelled. */
export function CancelDialog({ agent, onClose, onConfirm }: CancelDialogProps) {
  const { name, waiting, running } = agent;
  return (
    <Dialog
      open
      onClose={onClose}
      title={words.title(name)}
      about={words.about(waiting, running)}
      actions={
        <>
          <Button onClick={onClose}>{words.keep}</Button>
          <Button kind="danger" icon="stop" onClick={onConfirm}>
            {words.confirm}
          </Button>
        </>
      }
    >
      <p className="quiet">{words.warning}</p>
    </Dialog>
  );
}
