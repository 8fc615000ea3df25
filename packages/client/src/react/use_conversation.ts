import { useMemo, useSyncExternalStore } from "react";
import type { Conversation } from "../conversation/conversations.ts";
import { type ConversationView, UNOPENED } from "../conversation/room.ts";
import { useKhala } from "./provider.ts";

/** A conversation as a component has it. */
export interface ConversationHook extends ConversationView, Pick<Conversation, "send" | "stop" | "delete"> {}

/** A conversation, live: what was said, what runs, and what can be done. */
export function useConversation(convId: string): ConversationHook {
  const client = useKhala();
  const conversation = useMemo(() => client.conversation(convId), [client, convId]);
  const state = useSyncExternalStore(conversation.subscribe, conversation.state, () => UNOPENED);
  return useMemo(() => {
    const { send, stop, delete: remove } = conversation;
    return { ...state, send, stop, delete: remove };
  }, [state, conversation]);
}
