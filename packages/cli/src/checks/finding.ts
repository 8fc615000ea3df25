/** What a check found. */
export interface Finding {
  readonly check: string;
  /** A warning is worth knowing; only a problem keeps something from working. */
  readonly state: "ok" | "warning" | "problem";
  readonly detail: string;
  /** What to do about it. */
  readonly mend?: string;
}

/** All is well. */
export function ok(check: string, detail: string): Finding {
  return { check, state: "ok", detail };
}

/** Worth knowing. */
export function warning(check: string, detail: string, mend: string): Finding {
  return { check, state: "warning", detail, mend };
}

/** Keeps something from working. */
export function problem(check: string, detail: string, mend: string): Finding {
  return { check, state: "problem", detail, mend };
}
