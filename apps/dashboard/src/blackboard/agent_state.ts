import type { State } from "../parts/state_badge.tsx";
import { boardWords } from "../strings/blackboard.ts";

const STATES: Readonly<Record<string, State>> = {
  running: "ok",
  paused: "waiting",
  half_open: "working",
  open: "failed",
};

/** The colour of an agent's state. An agent that runs is well, whether or not it has something to do. */
export const agentState = (state: string): State => STATES[state] ?? "waiting";

/** What an agent's state is called. */
export const agentStateWord = (state: string): string => boardWords.agents.states[state] ?? state;
