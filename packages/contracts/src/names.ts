/** The Phoenix channel of the sync plane. */
export const SYNC_CHANNEL = "sync:v1";

/** Scopes that are not topic names. */
export const SCOPES = {
  runtimeWrite: "runtime:write",
  chat: "chat",
  blackboardRead: "blackboard:read",
  blackboardWrite: "blackboard:write",
  ops: "ops",
} as const;
