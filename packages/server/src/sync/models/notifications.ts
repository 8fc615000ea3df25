import type { NotificationJson, RunFailedJson } from "@khala/contracts/runtime/v1";
import type { AuthorityEvent } from "../../events/stream.ts";
import { runs, workers } from "../../events/streams.ts";
import { defineModel } from "../model.ts";

const TEXTS: Record<string, (event: AuthorityEvent) => string> = {
  "run.completed": (event) => `Run ${event.streamId} is done.`,
  "run.failed": (event) =>
    `Run ${event.streamId} failed: ${(event.data as RunFailedJson).error ?? "no reason given"}`,
  "worker.retired": (event) => `Worker ${event.streamId} has retired.`,
};

/** `runtime.notifications`: what the owner of a run or worker should hear of, and nobody else. */
export const notifications = defineModel({
  topic: "runtime.notifications",
  prefix: "notification",
  streams: [runs, workers],
  id: (event) => (TEXTS[event.type] ? `${event.kind}:${event.streamId}:${event.seq}` : null),
  audience: (_: NotificationJson, event) => [event.owner],
  project(before: NotificationJson | null, event) {
    const text = TEXTS[event.type];
    if (!text) return before;
    return {
      kind: event.type,
      about: `${event.kind}:${event.streamId}`,
      text: text(event),
      created_at: event.at,
    };
  },
});
