import { useConversation, useKhala } from "@khala/client/react";
import { type ReactNode, useEffect, useMemo, useRef, useState } from "react";
import { useApp } from "../data/app.ts";
import { type ErrorInfo, toErrorInfo } from "../data/fetch.ts";
import { links, useParam } from "../router.ts";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Empty, Failure, Loading } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Id } from "../ui/format/id.tsx";
import { Composer, policyOf } from "./composer.tsx";
import { ConversationId } from "./message_file.tsx";
import { Messages } from "./messages.tsx";
import { People } from "./people.tsx";
import { type ConversationView, RUN_STATUS, type RunError } from "./types.ts";
import { type ConversationRecord, type RecordState, useRecord } from "./use_record.ts";

/** What the demo assistant understands. */
const SUGGESTIONS = [
  "What is the weather in Bern?",
  "Publish a note about otters",
  "/slow Tell me a slow story",
  "/fail",
];

interface ChatProps {
  readonly convId: string;
  readonly header: (health: ReactNode, isAbsent?: boolean) => ReactNode;
}

/** A conversation, live once there is one. Opening a link creates none. */
export function Chat({ convId, header }: ChatProps) {
  const state = useRecord(convId);
  if (state.isAbsent) return <Absent convId={convId} header={header} state={state} />;
  if (state.error && !state.record)
    return (
      <>
        {header(null)}
        <Failure error={state.error} onRetry={state.refetch} />
      </>
    );
  return state.record ? (
    <Live convId={convId} header={header} record={state.record} onEnd={state.refetch} />
  ) : (
    <>
      {header(null)}
      <Loading />
    </>
  );
}

/** Nothing was said under this id: the first message makes it a conversation. */
function Absent({ convId, header, state }: ChatProps & { readonly state: RecordState }) {
  const khala = useKhala();
  const [policy, setPolicy] = useParam("policy");
  const [draft, setDraft] = useState<string>();
  return (
    <>
      {header(null, true)}
      <Suggestions isNew={state.isNew} onChoose={setDraft} />
      <Composer
        running={false}
        policy={policyOf(policy)}
        onPolicy={(next) => setPolicy(next, { replace: true })}
        upload={khala.conversation(convId).upload}
        onSend={async (message, idempotencyKey) => {
          await khala.conversation(convId).send(message, { policy: policyOf(policy), idempotencyKey });
          state.begun();
        }}
        onStop={async () => {}}
        {...(draft !== undefined && { draft })}
      />
    </>
  );
}

interface LiveProps extends ChatProps {
  readonly record: ConversationRecord;
  /** A run ended: the record has its outcome. */
  readonly onEnd: () => void;
}

/** A live conversation, and the box to send a message. */
function Live({ convId, header, record, onEnd }: LiveProps) {
  const khala = useKhala();
  const conversation = useConversation(convId);
  const { messages, run, health, error } = conversation;
  const [policy, setPolicy] = useParam("policy");
  const isEmpty = messages.length === 0;
  // With an operator who looks at it, too: the owner's words are not theirs.
  const people = new Set(
    [...(record.participants ?? []), ...conversation.present].map(({ subject }) => subject),
  );
  const { regenerate, edit, chooseBranch, decide } = conversation;
  const [failed, setFailed] = useState<ErrorInfo>();
  const actions = useMemo(() => {
    const tried = (work: Promise<unknown>) => {
      setFailed(undefined);
      work.catch((thrown) => setFailed(toErrorInfo(thrown)));
    };
    return {
      regenerate: (id: string) => tried(regenerate(id)),
      edit: (id: string, text: string) => tried(edit(id, text)),
      choose: (id: string) => tried(chooseBranch(id)),
      decide: (callId: string, approve: boolean) => tried(decide(callId, { approve })),
    };
  }, [regenerate, edit, chooseBranch, decide]);
  const failure = health === "error" ? error : undefined;
  const isRunning = run !== null;
  const wasRunning = useRef(isRunning);
  useEffect(() => {
    if (wasRunning.current && !isRunning) onEnd();
    wasRunning.current = isRunning;
  }, [isRunning, onEnd]);

  return (
    <>
      {header(<Health health={health} />)}
      <People participants={record.participants ?? []} present={conversation.present} />
      {!isEmpty ? (
        <>
          {failure && <Failure error={failure} inline />}
          {failed && <Failure error={failed} inline />}
          <ConversationId value={convId}>
            <Messages messages={messages} actions={actions} showsAuthors={people.size > 1}>
              <RunStatus view={conversation} lastRun={record.last_run} />
            </Messages>
          </ConversationId>
        </>
      ) : failure?.code === "not_found" ? (
        <Empty title="Conversation not found" icon="lock">
          It was deleted, or belongs to somebody else.
        </Empty>
      ) : failure ? (
        <Failure error={failure} />
      ) : health === "connecting" ? (
        <Loading />
      ) : (
        <Empty title="No messages" icon="conversations" />
      )}
      <Composer
        key={convId}
        running={isRunning}
        policy={policyOf(policy)}
        onPolicy={(next) => setPolicy(next, { replace: true })}
        upload={khala.conversation(convId).upload}
        onSend={async (message, idempotencyKey) => {
          await conversation.send(message, { policy: policyOf(policy), idempotencyKey });
        }}
        onStop={async () => {
          await conversation.stop();
        }}
      />
    </>
  );
}

/** What to do, where the message itself does not say it. */
const ADVICE: Readonly<Record<string, string>> = {
  timeout: "Ask for less at once, or send it again.",
  too_large: "Ask for less at once.",
  server_lost: "Send the message again.",
};

interface RunStatusProps {
  readonly view: Pick<ConversationView, "run" | "activity" | "outcome">;
  /** The newest run that ended, as the server has it: for a page that did not see its end. */
  readonly lastRun?: ConversationRecord["last_run"];
}

/** The status of the current run, or why the last one failed: never an exception, but its id for those who may read it. */
export function RunStatus({ view, lastRun }: RunStatusProps) {
  const { run, activity, outcome } = view;
  if (run)
    return (
      <p className="run-status" role="status">
        <StateBadge
          state={run.status === "queued" || run.status === "waiting" ? "waiting" : "working"}
          word={runText(run, activity)}
        />
      </p>
    );
  const failure =
    outcome?.status === "failed"
      ? outcome
      : outcome || lastRun?.status !== "failed"
        ? undefined
        : lastRun.error;
  if (!failure) return <p className="visually-hidden" role="status" />;
  return <RunFailure failure={failure} />;
}

/** What a run does, or what it waits for. */
function runText(
  { status = "", waits_for = [] }: NonNullable<ConversationView["run"]>,
  activity?: string,
): string {
  if (status !== "waiting") return activity ?? RUN_STATUS[status] ?? "responding";
  const isApproval = waits_for.some((call) => call.waits_for === "approval");
  return isApproval ? "Waiting for an approval" : "Waiting for the client to run a tool";
}

function RunFailure({ failure }: { readonly failure: RunError }) {
  const { code = "internal", message, error_id: errorId } = failure;
  return (
    <div className="run-failure" role="alert">
      <Icon name="failed" size={14} />
      <div>
        <p>
          <strong>{message || "The run failed."}</strong> {ADVICE[code]}
        </p>
        <p className="run-failure-facts">
          <code>{code}</code>
          {errorId && (
            <>
              <span>
                Error id <Id value={errorId} length={14} />
              </span>
              <a href={links.failedRun(errorId)}>Find the cause</a>
            </>
          )}
        </p>
      </div>
    </div>
  );
}

const HEALTH = {
  live: ["ok", "live", "Messages stream live on all devices."],
  connecting: ["working", "connecting", "The run continues. Missed messages appear after reconnecting."],
  offline: ["waiting", "offline", "There is no network. The run continues on the server."],
  error: ["failed", "not connected", "This page receives no messages."],
} as const;

function Health({ health }: Pick<ConversationView, "health">) {
  const [state, word, help] = HEALTH[health];
  return (
    <span title={help} className="health" role="status">
      <StateBadge state={state} word={word} />
    </span>
  );
}

interface SuggestionsProps {
  readonly isNew: boolean;
  readonly onChoose: (text: string) => void;
}

function Suggestions({ isNew, onChoose }: SuggestionsProps) {
  const { isDemo } = useApp();
  return (
    <div className="suggestions">
      {isNew ? (
        <Empty title="Send a message" icon="conversations">
          The response streams in, and continues on the server when you close the page.
        </Empty>
      ) : (
        <Empty title="No conversation with this id" icon="conversations">
          It was deleted, it belongs to somebody else, or nobody has written yet. Send a message to start it.
        </Empty>
      )}
      {isDemo && (
        <ul>
          {SUGGESTIONS.map((text) => (
            <li key={text}>
              <Button onClick={() => onChoose(text)}>{text}</Button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
