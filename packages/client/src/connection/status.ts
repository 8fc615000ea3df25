import type { KhalaError } from "@khala/contracts";
import type { Machine } from "./machine.ts";
import type { ConnectionState, ConnectionStatus } from "./port.ts";

/** What a status has that the machine does not know. */
export interface Circumstances {
  readonly now: number;
  readonly retryAt: number | undefined;
  readonly error: KhalaError | undefined;
  readonly behind: number | undefined;
}

/** What people see of the machine: the same object as before if nothing changed. */
export function statusAfter(
  before: ConnectionStatus,
  { state: inner, attempt }: Machine,
  { now, retryAt, error, behind }: Circumstances,
): ConnectionStatus {
  const state: ConnectionState = inner === "waiting" ? "connecting" : inner;
  const status: ConnectionStatus = {
    state,
    since: state === before.state ? before.since : now,
    attempt: state === "live" ? 0 : attempt,
    ...(retryAt !== undefined && { retryAt }),
    ...(state === "replaying" && behind !== undefined && { behind }),
    ...(error && { error }),
    role: before.role,
  };
  const names = Object.keys({ ...before, ...status }) as (keyof ConnectionStatus)[];
  return names.every((name) => before[name] === status[name]) ? before : status;
}
