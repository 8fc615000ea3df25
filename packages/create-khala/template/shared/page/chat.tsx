import { useConversation } from "@khala/client/react";
import { useState } from "react";
import { Entry } from "./entry.tsx";

/** A conversation: it goes on after a reload, and on every device that opens it. */
export function Chat() {
  const [id] = useState(conversationId);
  const { messages, run, activity, error, send, stop } = useConversation(id);
  return (
    <section aria-labelledby="chat">
      <h2 id="chat">Chat</h2>
      <ol aria-live="polite">
        {messages.map(({ message_id, role, parts = [] }) => (
          <li key={message_id} data-role={role}>
            {parts.map(({ text }) => text).join("")}
          </li>
        ))}
      </ol>
      {error && <p role="alert">{error.message}</p>}
      {run && (
        <p>
          {run.status === "waiting" ? "Waiting for an approval" : `${activity ?? "Answering"}…`}{" "}
          <button type="button" onClick={() => void stop()}>
            Stop
          </button>
        </p>
      )}
      <Entry label="Message" send={(text) => send(text, { policy: "queue" })} />
    </section>
  );
}

/** One conversation for this browser. */
function conversationId(): string {
  const id = localStorage.getItem("conversation") ?? crypto.randomUUID();
  localStorage.setItem("conversation", id);
  return id;
}
