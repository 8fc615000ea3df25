/** The Phoenix channel of the sync plane. */
export const SYNC_CHANNEL = "sync:v1";

/** The Phoenix channel of a conversation. */
export const CONVERSATION_CHANNEL = "conversation:";

/** The Phoenix channel of operators. */
export const OPS_CHANNEL = "ops:v1";

/** What a conversation's id looks like: it is part of a key in Redis, of a channel, and of an address. */
export const CONV_ID = /^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$/;

/** The log of a conversation. */
export function topicForConv(convId: string): string {
  return `chat:${convId}`;
}

/** Scopes that are not topic names. docs/SECURITY-MODEL.md says what each allows. */
export const SCOPES = {
  runtimeWrite: "runtime:write",
  runtimeService: "runtime:service",
  chat: "chat",
  chatService: "chat:service",
  blackboardRead: "blackboard:read",
  blackboardWrite: "blackboard:write",
  blackboardWork: "blackboard:work:*",
  ops: "ops",
  platform: "platform",
} as const;

/** The scope of a worker that runs one agent. */
export function workScope(agent: string): string {
  return `blackboard:work:${agent}`;
}
