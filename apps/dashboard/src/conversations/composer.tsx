import { type FormEvent, type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { type ErrorInfo, toErrorInfo } from "../data/fetch.ts";
import { Button } from "../ui/controls/button.tsx";
import { Select } from "../ui/controls/select.tsx";
import { Failure } from "../ui/feedback/notices.tsx";

const POLICIES = [
  { value: "reject", label: "reject" },
  { value: "queue", label: "queue" },
  { value: "interrupt", label: "interrupt" },
] as const;

/** What happens to a message that is sent during a run. */
export type Policy = (typeof POLICIES)[number]["value"];

/** The policy of this name; "queue" for an unknown one. */
export const policyOf = (name: string | undefined): Policy =>
  POLICIES.find(({ value }) => value === name)?.value ?? "queue";

const ADVICE: Readonly<Record<string, string>> = {
  conversation_busy: "Wait, stop the run, or send with another policy.",
  missing_scope: "Use a token with the scope chat.",
  payload_too_large: "Shorten the message.",
  limit_exceeded: "Wait a moment, then send again.",
  unavailable: "Send again in a moment.",
  overloaded: "Send again in a moment.",
  not_found: "It was deleted, or belongs to somebody else.",
  token_expired: "Sign in again.",
};

export interface ComposerProps {
  readonly running: boolean;
  readonly policy: Policy;
  readonly onPolicy: (policy: Policy) => void;
  /** The idempotency key is the same when the same text is sent again. */
  readonly onSend: (text: string, key: string) => Promise<void>;
  readonly onStop: () => Promise<void>;
  /** Put into the box when it is empty, such as a suggestion. */
  readonly draft?: string;
}

interface Failed {
  readonly error: ErrorInfo;
  readonly text: string;
  readonly key: string;
}

/** The message box. A message that could not be sent returns to it, with what to do. */
export function Composer({ running, policy, onPolicy, onSend, onStop, draft }: ComposerProps) {
  const [text, setText] = useState("");
  const [failed, setFailed] = useState<Failed>();
  const [stopping, setStopping] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const hint = useId();

  useEffect(() => {
    if (!draft) return;
    setText((now) => (now === "" ? draft : now));
    box.current?.focus();
  }, [draft]);

  const send = async () => {
    const message = text.trim();
    if (message === "") return;
    const key = failed?.text === message ? failed.key : newKey();
    setText("");
    setFailed(undefined);
    try {
      await onSend(message, key);
    } catch (error) {
      setText((now) => (now === "" ? message : now));
      setFailed({ error: withAdvice(error), text: message, key });
    }
  };
  const stop = async () => {
    setStopping(true);
    try {
      await onStop();
    } catch (error) {
      setFailed({ error: withAdvice(error), text: "", key: "" });
    } finally {
      setStopping(false);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    send();
  };

  return (
    <form
      className="composer"
      onSubmit={(event: FormEvent) => {
        event.preventDefault();
        send();
      }}
    >
      {failed && <Failure error={failed.error} inline />}
      <div className="composer-box">
        <textarea
          ref={box}
          rows={1}
          value={text}
          placeholder="Write a message"
          aria-label="Message"
          aria-describedby={hint}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        <div className="composer-actions">
          <Select label="During a run" showLabel value={policy} options={POLICIES} onChange={onPolicy} />
          <span id={hint} className="composer-hint">
            Enter sends, Shift+Enter adds a line
          </span>
          {running && (
            <Button icon="stop" busy={stopping} onClick={stop}>
              {stopping ? "Stopping…" : "Stop"}
            </Button>
          )}
          <Button kind="primary" icon="up" type="submit" disabled={text.trim() === ""}>
            Send
          </Button>
        </div>
      </div>
    </form>
  );
}

/** The error, with what the user can do about it here. */
function withAdvice(error: unknown): ErrorInfo {
  const { code = "unavailable", message } = toErrorInfo(error);
  const advice = ADVICE[code];
  return { code, message: advice ? `${message} ${advice}` : message };
}

/** `crypto.randomUUID` is missing on pages without a secure origin, such as one on a phone in the same network. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");
}
