import { Icon } from "../controls/icons.tsx";

/** The four states that have a colour. */
export type State = "ok" | "working" | "waiting" | "failed";

export interface StateBadgeProps {
  readonly state: State;
  /** A more specific label, such as "retrying". */
  readonly word?: string;
}

/** A state as icon, colour and label. */
export function StateBadge({ state, word = state }: StateBadgeProps) {
  return (
    <span className={`state ${state}`}>
      <Icon name={state} size={14} />
      <span>{word}</span>
    </span>
  );
}

const WORDS: Readonly<Record<State, string>> = {
  ok: "ok done live completed finished published in_sync idle",
  working: "running working replaying connecting half_open busy",
  waiting: "queued waiting paused degraded stopped cancelled",
  failed: "open failed error dead unavailable differs",
};
const STATES = new Map(
  (Object.keys(WORDS) as State[]).flatMap((state) => WORDS[state].split(" ").map((word) => [word, state])),
);

/** The state that a status of the server stands for; "waiting" for an unknown one. */
export function stateOf(status: string | undefined): State {
  return STATES.get((status ?? "").toLowerCase()) ?? "waiting";
}
