import { type State, StateBadge } from "../../ui/feedback/state_badge.tsx";

/** A running agent is ok, whether or not it has tasks. */
const STATES: Readonly<Record<string, readonly [State, word: string]>> = {
  running: ["ok", "running"],
  paused: ["waiting", "paused"],
  half_open: ["working", "breaker half open"],
  open: ["failed", "breaker open"],
};

/** The colour of an agent's state. */
export const agentState = (state: string): State => STATES[state]?.[0] ?? "waiting";

/** The state of an agent. */
export function AgentState({ state }: { readonly state: string }) {
  return <StateBadge state={agentState(state)} word={STATES[state]?.[1] ?? state} />;
}
