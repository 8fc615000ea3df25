import { fromJson, type JsonValue, toJson } from "@bufbuild/protobuf";
import { inexactInteger } from "@khala/contracts";
import { type EntryJson, type EventJson, EventSchema } from "@khala/contracts/conversation/v1";
import type { Entry } from "../log/log.ts";

/** How the Redis driver keeps a record of another program: `{"foreign":{"<field>":"<value>",…}}`, or null for a large one. */
const PREFIX = '{"foreign":';

/** The events that only the server writes: others would end runs, or change lists, that they do not own. */
const OF_THE_SERVER = [
  "run_started",
  "run_finished",
  "run_failed",
  "run_stopped",
  "run_resumed",
  "run_waiting",
  "tool_approval_requested",
  "tool_approval_decided",
  "queue_changed",
  "participants_changed",
  "branch_changed",
] as const satisfies (keyof EventJson)[];

/** Whether another program wrote the entry. */
export function isForeign({ data }: Pick<Entry, "data">): boolean {
  return data.startsWith(PREFIX);
}

/** Reads another program's record; empty unless it is a valid event that others may write. */
export function readForeign(data: string): EntryJson {
  try {
    const { foreign } = JSON.parse(data) as { foreign: Readonly<Record<string, string>> | null };
    if (!foreign) return {};
    const { d, payload, run_id, event } = foreign;
    const whole = d ?? payload;
    if (inexactInteger(whole ?? event ?? "") !== undefined) return {};
    const entry = Object(whole === undefined ? { run_id, event: parse(event) } : parse(whole)) as EntryJson;
    const checked = checkEvent(entry.event);
    if (!checked || OF_THE_SERVER.some((kind) => checked[kind])) return {};
    return { run_id: typeof entry.run_id === "string" ? entry.run_id : "", event: checked };
  } catch {
    return {};
  }
}

function parse(text: string | undefined): unknown {
  return text === undefined ? undefined : JSON.parse(text);
}

/** The event, if it is one. */
function checkEvent(value: unknown): EventJson | undefined {
  const event = toJson(EventSchema, fromJson(EventSchema, value as JsonValue));
  return Object.keys(event).length > 0 ? event : undefined;
}
