export { type Hooks, hooksOf } from "./react/hooks_of.ts";
export { type AnyClient, KhalaProvider, useKhala } from "./react/provider.ts";
export { type BoardHook, useBoard } from "./react/use_board.ts";
export { useConnection } from "./react/use_connection.ts";
export { type ConversationHook, useConversation } from "./react/use_conversation.ts";
export { type ListOptions, type SelectedList, useDoc, useList } from "./react/use_sync.ts";
