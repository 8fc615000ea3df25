import { useState } from "react";
import { Ago } from "../parts/ago.tsx";
import { asFailure } from "../parts/asking.ts";
import { Button } from "../parts/button.tsx";
import { Dialog } from "../parts/dialog.tsx";
import { Empty, Failure, type FailureLike } from "../parts/states.tsx";
import { links } from "../router.ts";
import { boardWords } from "../strings/blackboard.ts";
import type { Approval } from "./board_types.ts";
import { Payload } from "./payload.tsx";

const words = boardWords.approvals;

export interface ApprovalsViewProps {
  readonly approvals: readonly Approval[];
  readonly onDecide: (id: string, decision: { approved: boolean; reason?: string }) => Promise<void>;
}

/** Tasks that wait for a person: what each is about, and the two answers. */
export function ApprovalsView({ approvals, onDecide }: ApprovalsViewProps) {
  const [busy, setBusy] = useState<string>();
  const [error, setError] = useState<FailureLike>();
  const [said, setSaid] = useState<string>();
  const [refusing, setRefusing] = useState<Approval>();

  const decide = async (id: string, decision: { approved: boolean; reason?: string }) => {
    setBusy(id);
    setError(undefined);
    try {
      await onDecide(id, decision);
      setSaid(decision.approved ? words.approved : words.refused);
    } catch (failure) {
      setError(asFailure(failure));
    } finally {
      setBusy(undefined);
      setRefusing(undefined);
    }
  };

  return (
    <div className="approvals">
      {error && <Failure error={error} inline />}
      <p role="status" className="room-note">
        {said}
      </p>
      {approvals.length === 0 ? (
        <Empty title={words.emptyTitle} icon="ok">
          {words.emptyText}
        </Empty>
      ) : (
        <ul aria-label={words.label}>
          {approvals.map((approval) => (
            <ApprovalCard
              key={approval.id}
              approval={approval}
              busy={busy === approval.id}
              onApprove={() => decide(approval.id, { approved: true })}
              onRefuse={() => setRefusing(approval)}
            />
          ))}
        </ul>
      )}
      {refusing && (
        <RefuseDialog
          onClose={() => setRefusing(undefined)}
          onConfirm={(reason) => decide(refusing.id, { approved: false, ...(reason !== "" && { reason }) })}
        />
      )}
    </div>
  );
}

interface ApprovalCardProps {
  readonly approval: Approval;
  readonly busy: boolean;
  readonly onApprove: () => void;
  readonly onRefuse: () => void;
}

function ApprovalCard({ approval: { task, created_at }, busy, onApprove, onRefuse }: ApprovalCardProps) {
  return (
    <li className="approval">
      <header>
        <h3>
          <a href={links.agent(task.agent)}>{task.agent}</a>
        </h3>
        <span className="quiet">
          {words.since} <Ago at={created_at} />
        </span>
        <Button
          kind="primary"
          icon="check"
          busy={busy}
          aria-label={words.approveOf(task.agent)}
          onClick={onApprove}
        >
          {words.approve}
        </Button>
        <Button kind="danger" disabled={busy} aria-label={words.refuseOf(task.agent)} onClick={onRefuse}>
          {words.refuse}
        </Button>
      </header>
      {task.artifacts.map((artifact) => (
        <div key={artifact.id}>
          <h4>{artifact.type}</h4>
          <Payload artifact={artifact} />
        </div>
      ))}
    </li>
  );
}

function RefuseDialog(props: { readonly onClose: () => void; readonly onConfirm: (reason: string) => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog
      open
      onClose={props.onClose}
      title={words.refuseTitle}
      about={words.refuseText}
      actions={
        <>
          <Button onClick={props.onClose}>{words.cancel}</Button>
          <Button kind="danger" onClick={() => props.onConfirm(reason.trim())}>
            {words.confirm}
          </Button>
        </>
      }
    >
      <label className="refuse-reason">
        <span>{words.reason}</span>
        <input className="field" value={reason} onChange={(event) => setReason(event.target.value)} />
        <span className="quiet">{words.reasonHint}</span>
      </label>
    </Dialog>
  );
}
