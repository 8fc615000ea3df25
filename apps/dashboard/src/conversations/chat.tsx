import { useConversation } from "@khala/client/react";
import { type ReactNode, useMemo, useState } from "react";
import { type ErrorInfo, toErrorInfo } from "../data/fetch.ts";
import { useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { Button } from "../ui/controls/button.tsx";
import { Icon } from "../ui/controls/icons.tsx";
import { Empty, Failure, Loading } from "../ui/feedback/notices.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { Composer, policyOf } from "./composer.tsx";
import { Messages } from "./messages.tsx";
import { type ConversationView, RUN_STATUS } from "./types.ts";

/** What the demo assistant understands. */
const SUGGESTIONS = [
  "What is the weather in Bern?",
  "Publish a note about otters",
  "/slow Tell me a slow story",
  "/fail",
];

interface ChatProps {
  readonly convId: string;
  readonly header: (health: ReactNode) => ReactNode;
}

/** A live conversation, and the box to send a message. */
export function Chat({ convId, header }: ChatProps) {
  const conversation = useConversation(convId);
  const { messages, run, health, error } = conversation;
  const [policy, setPolicy] = useParam("policy");
  const [draft, setDraft] = useState<string>();
  const isEmpty = messages.length === 0;
  const { regenerate, edit, chooseBranch } = conversation;
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
    };
  }, [regenerate, edit, chooseBranch]);
  const failure = health === "error" ? error : undefined;

  return (
    <>
      {header(<Health health={health} />)}
      {!isEmpty ? (
        <>
          {failure && <Failure error={failure} inline />}
          {failed && <Failure error={failed} inline />}
          <Messages messages={messages} actions={actions}>
            <RunStatus view={conversation} />
          </Messages>
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
        <Suggestions onChoose={setDraft} />
      )}
      <Composer
        key={convId}
        running={run !== null}
        policy={policyOf(policy)}
        onPolicy={(next) => setPolicy(next, { replace: true })}
        onSend={async (text, idempotencyKey) => {
          await conversation.send(text, { policy: policyOf(policy), idempotencyKey });
        }}
        onStop={async () => {
          await conversation.stop();
        }}
        {...(draft !== undefined && { draft })}
      />
    </>
  );
}

const RUN_FAILURES: Readonly<Record<string, string>> = {
  timeout: "The response took too long. Ask for less at once, or send it again.",
  too_large: "The response exceeded the size limit. Ask for less at once.",
  server_lost: "The server that was responding is gone, and another has taken over. Send the message again.",
};

/** The status of the current run, or the error of the last one. */
export function RunStatus({
  view,
}: {
  readonly view: Pick<ConversationView, "run" | "activity" | "outcome">;
}) {
  const { run, activity, outcome } = view;
  if (run)
    return (
      <p className="run-status" role="status">
        <StateBadge
          state={run.status === "queued" ? "waiting" : "working"}
          word={activity ?? RUN_STATUS[run.status ?? ""] ?? "responding"}
        />
      </p>
    );
  if (outcome?.status !== "failed") return <p className="visually-hidden" role="status" />;
  const { code = "", message } = outcome;
  return (
    <div className="run-failure" role="alert">
      <Icon name="failed" size={14} />
      <p>
        <strong>{message}</strong> {RUN_FAILURES[code] ?? "Send the message again."} <code>{code}</code>
      </p>
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

function Suggestions({ onChoose }: { readonly onChoose: (text: string) => void }) {
  const { about } = useSession();
  return (
    <div className="suggestions">
      <Empty title="Send a message" icon="conversations">
        The response streams in, and continues on the server when you close the page.
      </Empty>
      {about.dev && (
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
