import { useChat } from "@ai-sdk/react";
import { useConnection, useKhala } from "@khala/client/react";
import { DefaultChatTransport, type UIMessage } from "ai";
import { useState } from "react";
import { token } from "./khala.ts";

const transport = new DefaultChatTransport({
  api: "/ai/chat",
  headers: async () => ({ authorization: `Bearer ${await token()}` }),
});

export interface ChatProps {
  readonly id: string;
  readonly before: UIMessage[];
}

/** A chat by the AI SDK. The run is the server's: it goes on when this page is gone, and `resume` joins it again. */
export function Chat({ id, before }: ChatProps) {
  const [text, setText] = useState("");
  const khala = useKhala();
  const { messages, sendMessage, status, error } = useChat({ id, messages: before, transport, resume: true });
  const busy = status === "submitted" || status === "streaming";
  return (
    <main>
      <ol aria-live="polite">
        {messages.map((message) => (
          <li key={message.id} data-role={message.role}>
            {message.parts.map((part, i) => (part.type === "text" ? <p key={i}>{part.text}</p> : null))}
          </li>
        ))}
      </ol>
      {error && <p role="alert">{error.message}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void sendMessage({ text });
          setText("");
        }}
      >
        <input
          aria-label="Message"
          placeholder="Say something, such as: How is the weather in Oslo?"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        {busy ? (
          <button type="button" onClick={() => void khala.conversation(id).stop()}>
            Stop
          </button>
        ) : (
          <button type="submit" disabled={text.trim() === ""}>
            Send
          </button>
        )}
      </form>
    </main>
  );
}

/** How the line is, when there is something to say about it. */
export function Line() {
  const { state, error } = useConnection();
  if (state === "unauthorised") return <p role="alert">{error?.message}</p>;
  if (state === "offline") return <p role="status">Offline. Showing what was there.</p>;
  return <p role="status">{state === "live" ? "Live" : "Connecting…"}</p>;
}
