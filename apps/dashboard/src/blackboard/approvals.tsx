import { useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { useFetch } from "../data/fetch.ts";
import { links } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Dialog } from "../ui/controls/dialog.tsx";
import { Empty, Failure } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Payload } from "./artifact_panel.tsx";
import { readTask, type Task } from "./board_types.ts";

const EVERY_MS = 3_000;

interface Approval {
  readonly id: string;
  readonly task: Task;
  readonly created_at: string;
}

interface Decision {
  readonly id: string;
  readonly approved: boolean;
  readonly reason?: string;
}

/** Polls the tasks that wait for approval. */
export function useApprovals() {
  const { board } = useKhala();
  return useFetch(
    ["approvals"],
    async (): Promise<readonly Approval[]> => {
      const { approvals = [] } = await board.approvals();
      return approvals.map(({ id = "", task = {}, created_at = "" }) => ({
        id,
        created_at,
        task: readTask(task),
      }));
    },
    EVERY_MS,
  );
}

interface ApprovalsProps {
  readonly approvals: readonly Approval[];
  readonly onDecided: () => void;
}

/** The tasks that wait for approval. */
export function Approvals({ approvals, onDecided }: ApprovalsProps) {
  const { board } = useKhala();
  const [rejecting, setRejecting] = useState<string>();
  const decide = useMutation({
    mutationFn: ({ id, ...decision }: Decision) => board.decide(id, decision),
    onSuccess: onDecided,
    onSettled: () => setRejecting(undefined),
  });
  return (
    <div className="approvals">
      {decide.error && <Failure error={decide.error} inline />}
      <p role="status" className="note">
        {decide.isSuccess &&
          (decide.variables.approved
            ? "Approved. The task is queued."
            : "Rejected. The task is now a dead letter.")}
      </p>
      {approvals.length === 0 ? (
        <Empty title="No pending approvals" icon="ok">
          Tasks of agents with approval: true wait here for a decision.
        </Empty>
      ) : (
        <ul aria-label="Pending approvals">
          {approvals.map((approval) => (
            <ApprovalCard
              key={approval.id}
              approval={approval}
              busy={decide.isPending && decide.variables.id === approval.id}
              onApprove={() => decide.mutate({ id: approval.id, approved: true })}
              onReject={() => setRejecting(approval.id)}
            />
          ))}
        </ul>
      )}
      {rejecting !== undefined && (
        <RejectDialog
          onClose={() => setRejecting(undefined)}
          onConfirm={(reason) =>
            decide.mutate({ id: rejecting, approved: false, ...(reason !== "" && { reason }) })
          }
        />
      )}
    </div>
  );
}

interface ApprovalCardProps {
  readonly approval: Approval;
  readonly busy: boolean;
  readonly onApprove: () => void;
  readonly onReject: () => void;
}

function ApprovalCard({ approval: { task, created_at }, busy, onApprove, onReject }: ApprovalCardProps) {
  return (
    <li className="approval">
      <header>
        <h3>
          <a href={links.agent(task.agent)}>{task.agent}</a>
        </h3>
        <span className="quiet">
          Waiting since <Ago at={created_at} />
        </span>
        <Button
          kind="primary"
          icon="check"
          busy={busy}
          aria-label={`Approve the task of ${task.agent}`}
          onClick={onApprove}
        >
          Approve
        </Button>
        <Button
          kind="danger"
          disabled={busy}
          aria-label={`Reject the task of ${task.agent}`}
          onClick={onReject}
        >
          Reject…
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

function RejectDialog(props: { readonly onClose: () => void; readonly onConfirm: (reason: string) => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog
      onClose={props.onClose}
      title="Reject this task?"
      about="The task becomes a dead letter. It can be replayed from there."
      actions={
        <>
          <Button onClick={props.onClose}>Cancel</Button>
          <Button kind="danger" onClick={() => props.onConfirm(reason.trim())}>
            Reject
          </Button>
        </>
      }
    >
      <label className="refuse-reason">
        <span>Reason</span>
        <input className="field" value={reason} onChange={(event) => setReason(event.target.value)} />
        <span className="quiet">Optional. Stored with the dead letter.</span>
      </label>
    </Dialog>
  );
}
