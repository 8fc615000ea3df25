import type { KhalaClient } from "@khala/client";
import { useApprovals as useInbox, useKhala } from "@khala/client/react";
import { useMutation } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { type FetchState, toErrorInfo } from "../data/fetch.ts";
import { useFrozen } from "../data/pause.tsx";
import { links } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Dialog } from "../ui/controls/dialog.tsx";
import { DocsLink } from "../ui/feedback/docs_link.tsx";
import { Empty, Failure } from "../ui/feedback/notices.tsx";
import { Ago } from "../ui/format/ago.tsx";
import { Json } from "../ui/json/json.tsx";
import { Payload } from "./artifact_panel.tsx";
import { readTask, type Task } from "./board_types.ts";

type Pending = Awaited<ReturnType<KhalaClient["approvals"]["list"]>>[number];

interface Approval {
  readonly id: string;
  readonly created_at: string;
  /** As the server sent it. */
  readonly pending: Pending;
  /** The task on the board; none for a tool call of a conversation. */
  readonly task: Task | undefined;
}

interface Decision {
  readonly approval: Approval;
  readonly approved: boolean;
  readonly reason?: string;
}

/** What waits for a person, in conversations and on the board: live. */
export function useApprovals(): FetchState<readonly Approval[]> {
  const { approvals: newest, error, refresh } = useInbox();
  const approvals = useFrozen(newest);
  const data = useMemo(
    () =>
      approvals?.map((pending): Approval => {
        const { id = "", task, created_at = "" } = pending;
        return { id, created_at, pending, task: task && readTask(task) };
      }),
    [approvals],
  );
  return {
    data,
    error: error && toErrorInfo(error),
    loading: data === undefined && error === undefined,
    refetch: useCallback(() => void refresh(), [refresh]),
  };
}

interface ApprovalsProps {
  readonly approvals: readonly Approval[];
  readonly onDecided: () => void;
}

/** What waits for a person. */
export function Approvals({ approvals, onDecided }: ApprovalsProps) {
  const { approvals: inbox } = useKhala();
  const [rejecting, setRejecting] = useState<Approval>();
  const decide = useMutation({
    mutationFn: ({ approval, ...decision }: Decision) => inbox.decide(approval.pending, decision),
    onSuccess: onDecided,
    onSettled: () => setRejecting(undefined),
  });
  return (
    <div className="approvals">
      {decide.error && <Failure error={decide.error} inline />}
      <p role="status" className="note">
        {decide.isSuccess && outcomeOf(decide.variables)}
      </p>
      {approvals.length === 0 ? (
        <Empty
          title="No pending approvals"
          icon="ok"
          action={<DocsLink page="guides/agent_patterns.md">How agents ask</DocsLink>}
        >
          Tasks of agents with <code>approval: true</code>, and tool calls of conversations that need one,
          appear here.
        </Empty>
      ) : (
        <ul aria-label="Pending approvals">
          {approvals.map((approval) => (
            <ApprovalCard
              key={approval.id}
              approval={approval}
              busy={decide.isPending && decide.variables.approval.id === approval.id}
              onApprove={() => decide.mutate({ approval, approved: true })}
              onReject={() => setRejecting(approval)}
            />
          ))}
        </ul>
      )}
      {rejecting !== undefined && (
        <RejectDialog
          ofTask={rejecting.task !== undefined}
          onClose={() => setRejecting(undefined)}
          onConfirm={(reason) =>
            decide.mutate({ approval: rejecting, approved: false, ...(reason !== "" && { reason }) })
          }
        />
      )}
    </div>
  );
}

function outcomeOf({ approval: { task }, approved }: Decision): string {
  if (!task) return approved ? "Approved. The run continues." : "Rejected. The run continues without it.";
  return approved ? "Approved. The task is queued." : "Rejected. The task has ended and published nothing.";
}

interface ApprovalCardProps {
  readonly approval: Approval;
  readonly busy: boolean;
  readonly onApprove: () => void;
  readonly onReject: () => void;
}

function ApprovalCard({ approval, busy, onApprove, onReject }: ApprovalCardProps) {
  const { task, created_at, pending } = approval;
  const { conv_id = "", tool = "", input } = pending;
  const what = task ? `the task of ${task.agent}` : `the tool ${tool}`;
  return (
    <li className="approval">
      <header>
        <h3>
          {task ? (
            <a href={links.agent(task.agent)}>{task.agent}</a>
          ) : (
            <a href={links.conversation(conv_id)}>{tool}</a>
          )}
        </h3>
        <span className="quiet">
          {task ? "Task of an agent" : "Tool call of a conversation"}, asked <Ago at={created_at} />
        </span>
        <Button kind="primary" icon="check" busy={busy} aria-label={`Approve ${what}`} onClick={onApprove}>
          Approve
        </Button>
        <Button kind="danger" disabled={busy} aria-label={`Reject ${what}`} onClick={onReject}>
          Reject…
        </Button>
      </header>
      {!task && (
        <div>
          <h4>Input</h4>
          <Json value={input ?? null} label="Input" />
        </div>
      )}
      {task?.artifacts.map((artifact) => (
        <div key={artifact.id}>
          <h4>{artifact.type}</h4>
          <Payload artifact={artifact} />
        </div>
      ))}
    </li>
  );
}

function RejectDialog(props: {
  readonly ofTask: boolean;
  readonly onClose: () => void;
  readonly onConfirm: (reason: string) => void;
}) {
  const [reason, setReason] = useState("");
  return (
    <Dialog
      onClose={props.onClose}
      title={props.ofTask ? "Reject this task?" : "Reject this tool call?"}
      about={
        props.ofTask
          ? "The task ends and publishes nothing. A decision cannot be changed."
          : "The tool is not executed. The engine is notified, and the run continues."
      }
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
        <span className="quiet">
          {props.ofTask ? "Optional. Stored with the decision." : "Optional. Sent to the engine."}
        </span>
      </label>
    </Dialog>
  );
}
