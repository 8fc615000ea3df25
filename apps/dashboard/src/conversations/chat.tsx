import { useConversation } from "@khala/client/react";
import { type ReactNode, useState } from "react";
import { Button } from "../parts/button.tsx";
import { Icon } from "../parts/icons.tsx";
import { StateBadge } from "../parts/state_badge.tsx";
import { Empty, Failure, Loading } from "../parts/states.tsx";
import { useParam } from "../router.ts";
import { useSession } from "../session.tsx";
import { conversationWords } from "../strings/conversations.ts";
import { Composer, policyOf } from "./composer.tsx";
import { Messages } from "./messages.tsx";
import type { ConversationView } from "./types.ts";

const words = conversationWords.chat;

/** A conversation as it happens, and the box to say something in it. */
export function Chat({
  convId,
  header,
}: {
  readonly convId: string;
  readonly header: (health: ReactNode) => ReactNode;
}) {
  const conversation = useConversation(convId);
  const { messages, run, health, error } = conversation;
  const [policy, setPolicy] = useParam("policy");
  const [draft, setDraft] = useState<string>();
  const isFresh = messages.length === 0;
  const isForeign = health === "error" && error?.code === "not_found" && isFresh;

  return (
    <>
      {header(<Health view={conversation} />)}
      {health === "error" && error && !isFresh && <Failure error={error} inline />}
      {isFresh && health === "error" && error && !isForeign ? (
        <Failure error={error} />
      ) : isForeign ? (
        <Empty title={words.foreignTitle} icon="lock">
          {words.foreignText}
        </Empty>
      ) : isFresh && health === "connecting" ? (
        <Loading />
      ) : isFresh ? (
        <Suggestions onChoose={setDraft} />
      ) : (
        <Messages messages={messages}>
          <Going view={conversation} />
        </Messages>
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

/** What is going on at the moment, or how the last run ended when that needs a word. */
export function Going({ view }: { readonly view: Pick<ConversationView, "run" | "activity" | "outcome"> }) {
  const { run, activity, outcome } = view;
  if (run)
    return (
      <p className="going" role="status">
        <StateBadge
          state={run.status === "queued" ? "waiting" : "working"}
          word={activity ?? conversationWords.run[run.status ?? ""] ?? words.streaming}
        />
      </p>
    );
  if (outcome?.status !== "failed") return <p className="visually-hidden" role="status" />;
  const advice = conversationWords.runFailure[outcome.code ?? ""] ?? conversationWords.runFailureOther;
  return (
    <div className="run-failure" role="alert">
      <Icon name="failed" size={14} />
      <p>
        <strong>{outcome.message}</strong> {advice} <code>{outcome.code}</code>
      </p>
    </div>
  );
}

function Health({ view: { health } }: { readonly view: Pick<ConversationView, "health"> }) {
  const states = { live: "ok", connecting: "working", offline: "waiting", error: "failed" } as const;
  return (
    <span title={conversationWords.health.help[health]} className="health" role="status">
      <StateBadge state={states[health]} word={conversationWords.health[health]} />
    </span>
  );
}

function Suggestions({ onChoose }: { readonly onChoose: (text: string) => void }) {
  const { about } = useSession();
  return (
    <div className="suggestions">
      <Empty title={words.emptyTitle} icon="conversations">
        {words.emptyText}
      </Empty>
      {/* What the demo's assistant understands; another one may not. */}
      {about.dev && (
        <ul>
          {words.suggestions.map((text) => (
            <li key={text}>
              <Button onClick={() => onChoose(text)}>{text}</Button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
