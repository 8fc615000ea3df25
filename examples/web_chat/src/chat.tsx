import { useChat } from "@ai-sdk/react";
import { useConnection, useKhala } from "@khala/client/react";
import { DefaultChatTransport } from "ai";
import { useEffect, useState } from "react";
import { type Found, historyOf } from "./history.ts";
import { token } from "./khala.ts";

const transport = new DefaultChatTransport({
  api: "/ai/chat",
  headers: async () => ({ authorization: `Bearer ${await token()}` }),
});

/** A chat by the AI SDK. The run is the server's: it goes on when this page is gone, and a new one joins it again. */
export function Chat({ id, before, unfinished }: Found) {
  const [text, setText] = useState("");
  const [lost, setLost] = useState<Error>();
  const khala = useKhala();
  const { messages, setMessages, sendMessage, resumeStream, status, error } = useChat({
    id,
    messages: before,
    transport,
  });
  useEffect(() => {
    // In place of `resume`, which shows nothing of an answer that ended between the two requests: it is history by now.
    const rejoin = async () => {
      await resumeStream();
      const { before: now } = await historyOf(id);
      setMessages((shown) => (shown.length < now.length ? now : shown));
    };
    if (unfinished) rejoin().catch(setLost);
  }, [id, unfinished, resumeStream, setMessages]);
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
      {(error ?? lost) && <p role="alert">{(error ?? lost)?.message}</p>}
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
