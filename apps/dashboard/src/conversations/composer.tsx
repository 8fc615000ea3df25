import { type FormEvent, type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { Button } from "../parts/button.tsx";
import { Select } from "../parts/select.tsx";
import { Failure, type FailureLike } from "../parts/states.tsx";
import { conversationWords } from "../strings/conversations.ts";

const words = conversationWords.composer;

/** What happens to a message while an answer is under way. */
export type Policy = keyof typeof words.policies;

const POLICIES = Object.keys(words.policies) as readonly Policy[];

const POLICY_OPTIONS = POLICIES.map((value) => ({ value, label: words.policies[value] }));

/** The policy that a text names; waiting is the kindest. */
export const policyOf = (text: string | undefined): Policy =>
  POLICIES.find((policy) => policy === text) ?? "queue";

export interface ComposerProps {
  readonly running: boolean;
  readonly policy: Policy;
  readonly onPolicy: (policy: Policy) => void;
  /** The key is the same when the same text is sent again. */
  readonly onSend: (text: string, key: string) => Promise<void>;
  readonly onStop: () => Promise<void>;
  /** Put into the box when it is empty, such as a suggestion that was clicked. */
  readonly draft?: string;
}

interface Failed {
  readonly error: FailureLike;
  readonly text: string;
  readonly key: string;
}

/** Where a person writes. A message that was not sent comes back into the box, with what to do. */
export function Composer({ running, policy, onPolicy, onSend, onStop, draft }: ComposerProps) {
  const [text, setText] = useState("");
  const [failed, setFailed] = useState<Failed>();
  const [stopping, setStopping] = useState(false);
  const box = useRef<HTMLTextAreaElement>(null);
  const hint = useId();

  useEffect(() => {
    if (!draft) return;
    setText((there) => (there === "" ? draft : there));
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
      setText((there) => (there === "" ? message : there));
      setFailed({ error: advised(error), text: message, key });
    }
  };
  const stop = async () => {
    setStopping(true);
    try {
      await onStop();
    } catch (error) {
      setFailed({ error: advised(error), text: "", key: "" });
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
          placeholder={words.placeholder}
          aria-label={words.label}
          aria-describedby={hint}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
        />
        <div className="composer-actions">
          <Select
            label={words.policy}
            showLabel
            value={policy}
            options={POLICY_OPTIONS}
            onChange={onPolicy}
          />
          <span id={hint} className="composer-hint">
            {words.hint}
          </span>
          {running && (
            <Button icon="stop" busy={stopping} onClick={stop}>
              {stopping ? words.stopping : words.stop}
            </Button>
          )}
          <Button kind="primary" icon="up" type="submit" disabled={text.trim() === ""}>
            {words.send}
          </Button>
        </div>
      </div>
    </form>
  );
}

/** The error, with what a person can do about it in this place. */
function advised(error: unknown): FailureLike {
  const { code = "unavailable", message = String(error) } = Object(error) as Partial<FailureLike>;
  const advice = conversationWords.advice[code];
  return { code, message: advice ? `${message} ${advice}` : message };
}

/** `crypto.randomUUID` is missing on pages that are not served securely, such as one on a phone in the same network. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");
}
