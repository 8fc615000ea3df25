import type { KhalaClient } from "@khala/client";
import { type FormEvent, type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { type ErrorInfo, toErrorInfo } from "../data/fetch.ts";
import { Button } from "../ui/controls/button.tsx";
import { Select } from "../ui/controls/select.tsx";
import { Failure } from "../ui/feedback/notices.tsx";
import { classNames } from "../ui/format/class_names.ts";
import { AttachButton, AttachmentList, useAttachments } from "./attachments.tsx";

const POLICIES = [
  { value: "queue", label: "Queue" },
  { value: "interrupt", label: "Interrupt" },
  { value: "reject", label: "Reject" },
] as const;

/** What happens to a message that is sent during a run. */
export type Policy = (typeof POLICIES)[number]["value"];

/** The policy of this name; "queue" for an unknown one. */
export const policyOf = (name: string | undefined): Policy =>
  POLICIES.find(({ value }) => value === name)?.value ?? "queue";

type Chat = ReturnType<KhalaClient["conversation"]>;
/** A message as the client sends it: a text, or a text with files. */
type Outgoing = Parameters<Chat["send"]>[0];

const ADVICE: Readonly<Record<string, string>> = {
  conversation_busy: "Wait, stop the run, or send with another policy.",
  missing_scope: "Use a token with the scope chat.",
  payload_too_large: "Shorten the message, or send a smaller file.",
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
  /** Uploads a file of the conversation. */
  readonly upload: Chat["upload"];
  /** The idempotency key is the same when the same message is sent again. */
  readonly onSend: (message: Outgoing, key: string) => Promise<void>;
  readonly onStop: () => Promise<void>;
  /** Put into the box when it is empty, such as a suggestion. */
  readonly draft?: string;
}

interface Failed {
  readonly error: ErrorInfo;
  readonly content: string;
  readonly key: string;
}

/** The message box, with files. A message that could not be sent returns to it, with what to do. */
export function Composer(props: ComposerProps) {
  const { running, policy, onPolicy, upload, onSend, onStop, draft } = props;
  const [text, setText] = useState("");
  const [failed, setFailed] = useState<Failed>();
  const [stopping, setStopping] = useState(false);
  const [uploading, setUploading] = useState(false);
  const attachments = useAttachments(upload);
  const { list, isDropTarget } = attachments;
  const isSendable = !uploading && attachments.isSendable && (text.trim() !== "" || list.length > 0);
  const box = useRef<HTMLTextAreaElement>(null);
  const hint = useId();

  useEffect(() => {
    if (!draft) return;
    setText((now) => (now === "" ? draft : now));
    box.current?.focus();
  }, [draft]);

  const send = async () => {
    const message = text.trim();
    if (!isSendable) return;
    const content = JSON.stringify([message, list.map(({ id }) => id)]);
    const key = failed?.content === content ? failed.key : newKey();
    setFailed(undefined);
    try {
      if (list.length === 0) {
        setText("");
        await onSend(message, key);
        return;
      }
      setUploading(true);
      const files = await attachments.upload();
      await onSend({ text: message, files }, key);
      setText("");
      attachments.clear();
    } catch (error) {
      setText((now) => (now === "" ? message : now));
      setFailed({ error: withAdvice(error), content, key });
    } finally {
      setUploading(false);
    }
  };
  const stop = async () => {
    setStopping(true);
    try {
      await onStop();
    } catch (error) {
      setFailed({ error: withAdvice(error), content: "", key: "" });
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
      <div className={classNames("composer-box", isDropTarget && "composer-drop")}>
        <AttachmentList attachments={attachments} />
        <textarea
          ref={box}
          rows={1}
          value={text}
          placeholder={isDropTarget ? "Drop the files to attach them" : "Write a message"}
          aria-label="Message"
          aria-describedby={hint}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={onKeyDown}
          onPaste={attachments.onPaste}
          readOnly={uploading}
        />
        <div className="composer-actions">
          <AttachButton onAdd={attachments.add} />
          <Select label="During a run" showLabel value={policy} options={POLICIES} onChange={onPolicy} />
          <span id={hint} className="composer-hint">
            Enter sends, Shift+Enter adds a line
          </span>
          {running && (
            <Button icon="stop" busy={stopping} onClick={stop}>
              {stopping ? "Stopping…" : "Stop"}
            </Button>
          )}
          <Button kind="primary" icon="up" type="submit" busy={uploading} disabled={!isSendable}>
            {uploading ? "Uploading…" : "Send"}
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
