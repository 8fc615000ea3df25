import type { KhalaClient } from "@khala/client";

type Chat = ReturnType<KhalaClient["conversation"]>;

/** The state of a conversation. */
export type ConversationView = ReturnType<Chat["state"]>;
export type Message = ConversationView["messages"][number];
export type Part = NonNullable<Message["parts"]>[number];
/** An entry of the log, as sockets receive it. */
export type LogEvent = NonNullable<
  Awaited<ReturnType<KhalaClient["conversations"]["log"]>>["events"]
>[number];

/** Why a run failed, as everybody may read it. */
export type RunError = NonNullable<NonNullable<ConversationView["run"]>["error"]>;

/** The label of a run's status. */
export const RUN_STATUS: Readonly<Record<string, string>> = {
  queued: "queued",
  running: "responding",
  waiting: "waiting",
  finished: "finished",
  failed: "failed",
  stopped: "stopped",
  idle: "idle",
};
