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
  ok: "ok done live completed finished succeeded published approved in_sync idle",
  working: "running working replaying connecting half_open busy",
  waiting: "queued waiting paused degraded stopped cancelled",
  failed: "open failed error dead unavailable differs lost refused rejected crashed",
};
const STATES = new Map(
  (Object.keys(WORDS) as State[]).flatMap((state) => WORDS[state].split(" ").map((word) => [word, state])),
);

/** The state that a status of an app stands for; undefined for an unknown one. An open issue is no open circuit breaker. */
export function knownStateOf(status: string | undefined): State | undefined {
  const word = (status ?? "").toLowerCase();
  return word === "open" ? undefined : STATES.get(word);
}

/** The state that a status of the server stands for; "waiting" for an unknown one. */
export function stateOf(status: string | undefined): State {
  return STATES.get((status ?? "").toLowerCase()) ?? "waiting";
}
