import { memo } from "react";
import { StateBadge } from "../parts/state_badge.tsx";
import { conversationWords } from "../strings/conversations.ts";
import { PartView } from "./message_parts.tsx";
import type { Message } from "./types.ts";

const words = conversationWords.chat;

const NAMES: Readonly<Record<string, string>> = {
  user: words.you,
  assistant: words.assistant,
  system: words.system,
};

/** A message with its parts. Renders again only when it changed. */
export const MessageView = memo(function MessageView({ message }: { readonly message: Message }) {
  const { role = "assistant", parts = [], status } = message;
  const streaming = status === "streaming";
  return (
    <li className={`message message-${role}`}>
      <h3>{NAMES[role] ?? role}</h3>
      <div className="message-body">
        {message.truncated && <p className="quiet">{words.truncated}</p>}
        {parts.map((part, index) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: parts are only ever added at the end
          <PartView key={index} part={part} open={streaming && index === parts.length - 1} />
        ))}
        {streaming && <span className="caret" aria-hidden="true" />}
        {status === "sending" && <span className="message-note">{words.sending}</span>}
        {status === "queued" && <span className="message-note">{words.queued}</span>}
        {status === "failed" && <StateBadge state="failed" word={words.failed} />}
        {status === "stopped" && <StateBadge state="waiting" word={words.stopped} />}
      </div>
    </li>
  );
});
