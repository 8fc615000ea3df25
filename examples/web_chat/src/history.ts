import type { ConversationStateJson } from "@khala/contracts/conversation/v1";
import type { UIMessage } from "ai";
import { token } from "./khala.ts";

/** A conversation as this page found it. */
export interface Found {
  readonly id: string;
  /** What was said before this page was opened. */
  readonly before: UIMessage[];
  /** Whether an answer was under way. */
  readonly unfinished: boolean;
}

/** The conversation of this page: in its address, so that a reload and a second device are in the same one. */
export async function findConversation(): Promise<Found> {
  const address = new URL(location.href);
  const known = address.searchParams.get("chat");
  if (known) return { id: known, ...(await historyOf(known)) };
  const id = crypto.randomUUID();
  address.searchParams.set("chat", id);
  history.replaceState(null, "", address);
  return { id, before: [], unfinished: false };
}

/** What was said so far. An answer that is under way is left out: who joins it is sent all of it. */
export async function historyOf(id: string): Promise<Omit<Found, "id">> {
  const answer = await fetch(`/chat/${id}`, { headers: { authorization: `Bearer ${await token()}` } });
  if (answer.status === 404) return { before: [], unfinished: false };
  if (!answer.ok) throw new Error(`The conversation could not be read: ${answer.status}.`);
  const { messages = [], run } = (await answer.json()) as ConversationStateJson;
  const said = messages.filter(({ status }) => status !== "streaming");
  return {
    before: said.map(({ message_id = "", role, parts = [] }) => ({
      id: message_id,
      role: role === "user" ? "user" : "assistant",
      parts: parts.flatMap(({ text }) => (text ? [{ type: "text", text }] : [])),
    })),
    unfinished: said.length < messages.length || run?.status === "queued" || run?.status === "running",
  };
}
