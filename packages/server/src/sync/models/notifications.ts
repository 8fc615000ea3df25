import type { NotificationJson } from "@khala/contracts/runtime/v1";
import { notificationStream, runs, workers } from "../../events/streams.ts";
import { defineModel, type EventsOf, tombstone } from "../model.ts";

const DAY_MS = 86_400_000;
/** A notification is deleted this long after it was made, and this long after it was read. */
const KEPT_MS = 30 * DAY_MS;
const KEPT_READ_MS = 7 * DAY_MS;

type NotificationEvent = EventsOf<readonly [typeof runs, typeof workers, typeof notificationStream]>;

/** The notification for an event of a run or worker; undefined for events without one. */
function newsOf(event: NotificationEvent): string | undefined {
  switch (event.type) {
    case "run.completed":
      return `Run ${event.streamId} is done.`;
    case "run.failed":
      return `Run ${event.streamId} failed: ${event.data.error ?? "no reason given"}`;
    case "worker.retired":
      return `Worker ${event.streamId} has retired.`;
    default:
      return undefined;
  }
}

/**
 * `runtime.notifications`: for one subject only: about its own runs and workers, and those an app sends.
 * Its subject marks it as read or dismisses it. It expires.
 */
export const notifications = defineModel({
  topic: "runtime.notifications",
  prefix: "notification",
  streams: [runs, workers, notificationStream],
  orderBy: ["-created_at"],
  id(event) {
    if (event.kind === "notification") return event.streamId;
    return newsOf(event) === undefined ? null : `${event.kind}:${event.streamId}:${event.seq}`;
  },
  audience: (notification: NotificationJson) => [notification.to ?? ""],
  expiresAt: (notification: NotificationJson) => notification.expires_at,
  project(before: NotificationJson | null, event) {
    // Anybody may append to the stream of a notification: only its subject changes it.
    const isMine = before !== null && before.to === event.actor;
    switch (event.type) {
      case "notification.sent": {
        const { to = "", text = "", about = "", expires_at } = event.data;
        const made = { kind: event.type, about, text, created_at: event.at, to };
        // Without a subject it would be everybody's.
        if (to === "") return before;
        return before ?? { ...made, expires_at: timeOf(expires_at) ?? later(event.at, KEPT_MS) };
      }
      case "notification.read": {
        if (!isMine || before.read_at) return before;
        const [expires_at] = [before.expires_at ?? "", later(event.at, KEPT_READ_MS)].sort();
        return { ...before, read_at: event.at, expires_at: expires_at! };
      }
      case "notification.dismissed":
        return isMine ? tombstone : before;
      default: {
        const text = newsOf(event);
        if (text === undefined) return before;
        const about = `${event.kind}:${event.streamId}`;
        const made = { kind: event.type, about, text, created_at: event.at, to: event.owner };
        return { ...made, expires_at: later(event.at, KEPT_MS) };
      }
    }
  },
});

function later(at: string, ms: number): string {
  return new Date(Date.parse(at) + ms).toISOString();
}

/** A time in one form of RFC 3339; undefined for other texts. */
function timeOf(text: string | undefined): string | undefined {
  const time = text === undefined ? Number.NaN : Date.parse(text);
  return Number.isNaN(time) ? undefined : new Date(time).toISOString();
}
