/** A diagnostic event for developers. */
export interface LogEvent {
  readonly level: "info" | "warn" | "error";
  /** A stable name of what happened, such as "storage_failed". */
  readonly event: string;
  readonly message: string;
  readonly topic?: string;
  readonly error?: unknown;
}

/** Receives diagnostic events. Default: discarded. */
export type Log = (event: LogEvent) => void;
