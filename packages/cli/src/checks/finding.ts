/** What a check found. */
export interface Finding {
  readonly check: string;
  /** A warning is worth knowing; only a problem keeps something from working. */
  readonly state: "ok" | "warning" | "problem";
  readonly detail: string;
  /** What to do about it. */
  readonly fix?: string;
}

/** All is well. */
export function ok(check: string, detail: string): Finding {
  return { check, state: "ok", detail };
}

/** Worth knowing. */
export function warning(check: string, detail: string, fix: string): Finding {
  return { check, state: "warning", detail, fix };
}

/** Keeps something from working. */
export function problem(check: string, detail: string, fix: string): Finding {
  return { check, state: "problem", detail, fix };
}
