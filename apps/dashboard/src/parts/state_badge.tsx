import { stateWords } from "../strings/parts.ts";
import { Icon } from "./icons.tsx";

/** The four states that have a colour. */
export type State = "ok" | "working" | "waiting" | "failed";

export interface StateBadgeProps {
  readonly state: State;
  /** The thing's own word for it, such as "retrying"; the state's word otherwise. */
  readonly word?: string;
}

/** A state as icon, colour and word. */
export function StateBadge({ state, word }: StateBadgeProps) {
  return (
    <span className={`state ${state}`}>
      <Icon name={state} size={14} />
      <span>{word ?? stateWords[state]}</span>
    </span>
  );
}

const STATES: Readonly<Record<string, State>> = {
  ok: "ok",
  done: "ok",
  live: "ok",
  completed: "ok",
  finished: "ok",
  published: "ok",
  in_sync: "ok",
  running: "working",
  working: "working",
  replaying: "working",
  connecting: "working",
  half_open: "working",
  busy: "working",
  queued: "waiting",
  waiting: "waiting",
  paused: "waiting",
  degraded: "waiting",
  idle: "ok",
  stopped: "waiting",
  cancelled: "waiting",
  open: "failed",
  failed: "failed",
  error: "failed",
  dead: "failed",
  unavailable: "failed",
  differs: "failed",
};

/** The state that a word of the server stands for; unknown words wait. */
export function stateOf(word: string | undefined): State {
  return STATES[(word ?? "").toLowerCase()] ?? "waiting";
}
