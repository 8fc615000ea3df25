/** The result of a check. */
export interface Finding {
  readonly check: string;
  /** Only a problem keeps a server from working. */
  readonly state: "ok" | "warning" | "problem";
  readonly detail: string;
  /** The fix. */
  readonly fix?: string;
}

/** A check that passed. */
export function ok(check: string, detail: string): Finding {
  return { check, state: "ok", detail };
}

/** A check that passed with a warning. */
export function warning(check: string, detail: string, fix: string): Finding {
  return { check, state: "warning", detail, fix };
}

/** A check that failed. */
export function problem(check: string, detail: string, fix: string): Finding {
  return { check, state: "problem", detail, fix };
}
