import { type MouseEvent, type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
import { Button } from "../parts/button.tsx";
import { conversationWords } from "../strings/conversations.ts";
import { MessageView } from "./message_view.tsx";
import type { Message } from "./types.ts";

const words = conversationWords.chat;

/** How near the end counts as reading along. */
const NEAR_PX = 48;

export interface MessagesProps {
  readonly messages: readonly Message[];
  /** Below the last message: what is going on, and what went wrong. */
  readonly children?: ReactNode;
}

/** The messages, oldest first. Whoever reads at the end stays there; whoever has scrolled up is left in peace. */
export function Messages({ messages, children }: MessagesProps) {
  const scroller = useRef<HTMLElement>(null);
  const following = useRef(true);
  const [behind, setBehind] = useState(false);

  const toEnd = () => {
    const element = scroller.current;
    if (element) element.scrollTop = element.scrollHeight;
  };

  // Also when something grows without a new render, such as a line that is broken anew.
  useEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const content = element.firstElementChild;
    if (!content) return;
    const observer = new ResizeObserver(() => {
      if (following.current) element.scrollTop = element.scrollHeight;
    });
    observer.observe(content);
    return () => observer.disconnect();
  }, []);

  // biome-ignore lint/correctness/useExhaustiveDependencies: what is shown has changed, and that is the moment to look
  useLayoutEffect(() => {
    // Whoever says something wants to see the answer.
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
    // Whoever opens something wants to read it there: it must not be scrolled away under them.
    if (target instanceof Element && target.closest("summary, button")) following.current = false;
  };

  return (
    <div className="messages">
      <section
        className="messages-scroller"
        ref={scroller}
        onScroll={onScroll}
        onClickCapture={onClickCapture}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
        tabIndex={0}
        aria-label={words.log}
      >
        <div className="messages-column">
          <ol>
            {messages.map((message, index) => (
              <MessageView key={message.message_id ?? index} message={message} />
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
          {words.newer}
        </Button>
      )}
    </div>
  );
}
