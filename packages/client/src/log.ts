/** Something that a developer may want to know, and a program can do nothing about. */
export interface LogEvent {
  readonly level: "info" | "warn" | "error";
  /** What happened, in a few words that stay the same. */
  readonly event: string;
  readonly message: string;
  readonly topic?: string;
  readonly error?: unknown;
}

/** Where such events go; nowhere unless the app says. */
export type Log = (event: LogEvent) => void;
