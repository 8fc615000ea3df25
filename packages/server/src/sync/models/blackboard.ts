import type { AgentStateJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import { boardAgents, boardCorrelations } from "../../events/streams.ts";
import { defineModel } from "../model.ts";

/** `blackboard.agents`: one document per agent, `board_agent:<agent>`. */
export const boardAgentStates = defineModel({
  topic: "blackboard.agents",
  prefix: "board_agent",
  table: "sync_board_agents",
  streams: [boardAgents],
  // Events leave out zeros, and documents need them.
  project: (_: AgentStateJson | null, event): AgentStateJson => ({
    // The name of an agent needs no encoding.
    name: event.streamId,
    waiting: "0",
    running: "0",
    done: "0",
    retried: "0",
    dead: "0",
    ...event.data,
  }),
});

/** `blackboard.correlations`: one document per correlation, `correlation:<correlation_id>`; the name is encoded as in the stream id. */
export const boardCorrelationStates = defineModel({
  topic: "blackboard.correlations",
  prefix: "correlation",
  table: "sync_board_correlations",
  streams: [boardCorrelations],
  project: (_: CorrelationStateJson | null, event): CorrelationStateJson => ({
    artifacts: "0",
    open: "0",
    done: "0",
    dead: "0",
    correlation_id: "",
    ...event.data,
    updated_at: event.at,
  }),
});
