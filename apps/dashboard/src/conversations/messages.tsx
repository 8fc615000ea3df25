import { type MouseEvent, memo, type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Button } from "../ui/controls/button.tsx";
import { StateBadge } from "../ui/feedback/state_badge.tsx";
import { type MessageActions, MessageBar, MessageEditor } from "./message_actions.tsx";
import { PartView, waitOf } from "./message_parts.tsx";
import type { Message } from "./types.ts";
import "./messages.css";

/** How near the end counts as reading along. */
const NEAR_PX = 48;
const ROLES: Readonly<Record<string, string>> = { user: "You", assistant: "Assistant", system: "System" };

export interface MessagesProps {
  readonly messages: readonly Message[];
  /** Absent where messages are only shown. */
  readonly actions?: MessageActions;
  /** Several people take part: each message says whose it is. */
  readonly showsAuthors?: boolean;
  /** Below the last message: the status of the run. */
  readonly children?: ReactNode;
}

/** The messages, oldest first. The view follows new ones, unless the reader has scrolled up. */
export function Messages({ messages, actions, showsAuthors = false, children }: MessagesProps) {
  const scroller = useRef<HTMLElement>(null);
  const following = useRef(true);
  const [behind, setBehind] = useState(false);
  const toEnd = () => {
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
  };

  // Also when the content grows without a render, such as by a line break.
  useEffect(() => {
    const element = scroller.current;
    const content = element?.firstElementChild;
    if (!element || !content) return;
    const observer = new ResizeObserver(() => {
      if (following.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(content);
    return () => observer.disconnect();
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: runs when the messages changed
  useLayoutEffect(() => {
    // Who sends a message wants to see the response.
    if (messages.at(-1)?.status === "sending") following.current = true;
    if (following.current) toEnd();
    else setBehind(true);
  }, [messages]);

  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    following.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
    if (following.current) setBehind(false);
  };
  const onClickCapture = ({ target }: MouseEvent) => {
    // What the reader opens must not scroll away.
    if (target instanceof Element && target.closest("summary, button")) following.current = false;
  };

  return (
    <div className="messages">
      <section
        className="messages-scroller"
        ref={scroller}
        onScroll={onScroll}
        onClickCapture={onClickCapture}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable by keyboard
        tabIndex={0}
        aria-label="Messages"
      >
        <div className="messages-column">
          <ol>
            {messages.map((message, index) => (
              <MessageView
                key={message.message_id ?? index}
                message={message}
                showsAuthor={showsAuthors}
                {...(actions && { actions })}
              />
            ))}
          </ol>
          {children}
        </div>
      </section>
      {behind && (
        <Button
          className="messages-newer"
          onClick={() => {
            following.current = true;
            setBehind(false);
            toEnd();
          }}
        >
          New messages
        </Button>
      )}
    </div>
  );
}

interface MessageViewProps {
  readonly message: Message;
  readonly showsAuthor: boolean;
  readonly actions?: MessageActions;
}

/** A message with its parts. Renders again only when it changed. */
const MessageView = memo(function MessageView({ message, showsAuthor, actions }: MessageViewProps) {
  const { message_id: id = "", role = "assistant", parts = [], status, author } = message;
  const streaming = status === "streaming";
  const [editing, setEditing] = useState(false);
  const isWaiting = parts.some(({ tool }) => tool && waitOf(tool));
  const settled = status === "done" || status === "failed" || status === "stopped";
  return (
    <li className={`message message-${role}`}>
      <h3>{showsAuthor && role === "user" && author ? author : (ROLES[role] ?? role)}</h3>
      {editing && actions ? (
        <MessageEditor
          text={parts[0]?.text ?? ""}
          onCancel={() => setEditing(false)}
          onSave={(text) => {
            setEditing(false);
            actions.edit(id, text);
          }}
        />
      ) : (
        <div className="message-body">
          {parts.map((part, index) => (
            <PartView
              // biome-ignore lint/suspicious/noArrayIndexKey: parts are only appended
              key={index}
              part={part}
              streaming={streaming && index === parts.length - 1}
              isPlain={role !== "assistant"}
              onDecide={actions?.decide}
            />
          ))}
          {streaming && !isWaiting && <span className="caret" aria-hidden="true" />}
          {status === "sending" && <span className="message-note">Sending…</span>}
          {status === "queued" && <span className="message-note">Queued</span>}
          {status === "failed" && <StateBadge state="failed" word="The response broke off" />}
          {status === "stopped" && <StateBadge state="waiting" word="Stopped" />}
        </div>
      )}
      {actions && settled && !editing && (
        <MessageBar message={message} actions={actions} onEdit={() => setEditing(true)} />
      )}
    </li>
  );
});
