import type { Agent, AgentOptions } from "../../../server/src/blackboard/model/agent.ts";
import type { Artifact } from "../../../server/src/blackboard/model/artifact.ts";
import { agent } from "../../../server/src/blackboard/model/define_agent.ts";
import type { Task } from "../../../server/src/blackboard/model/task.ts";
import { boardMetrics } from "../../../server/src/blackboard/observe/metrics.ts";
import { boardSpans } from "../../../server/src/blackboard/observe/spans.ts";
import {
  type AgentParts,
  openAgentConsumer,
  type RemoteWork,
} from "../../../server/src/blackboard/work/execution.ts";
import { openSlots } from "../../../server/src/blackboard/work/slots.ts";
import { testContext } from "./context.ts";
import { ManualClock } from "./manual_clock.ts";

/** A signal that never aborts. */
export const never = new AbortController().signal;
/** The artifact of the task in these tests. */
export const DRAFT: Artifact = {
  id: "01890a5d-ac96-774b-bcce-b302099a8057",
  type: "Draft",
  payload: { words: 3 },
  correlation_id: "c-1",
  tags: [],
  produced_by: "user:u-1",
  visibility: { kind: "org" },
  version: 1,
  created_at: "2026-01-01T00:00:00.000Z",
  org_id: "org-1",
  depth: 2,
};

/** A task of the agent "reviewer". */
export function taskWith(more: Partial<Task> = {}): Task {
  return {
    id: DRAFT.id,
    agent: "reviewer",
    artifacts: [DRAFT],
    key: "c-1",
    attempt: 1,
    created_at: DRAFT.created_at,
    ...more,
  };
}

/** For agents of which none is remote. */
export const noRemoteWork: RemoteWork = () => {
  throw new Error("The agent of this test runs here.");
};

/** The consumer of an agent with these options, and of others with the same parts, on a clock of its own. */
export async function testExecutor(
  options: Partial<AgentOptions>,
  more: Partial<AgentParts> & { remote?: RemoteWork } = {},
) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const { remote = noRemoteWork, ...others } = more;
  const parts: AgentParts = {
    slots: openSlots(10),
    metrics: boardMetrics(context.telemetry, ["reviewer"]),
    spans: boardSpans(context, {
      system: "postgresql",
      artifacts: "artifacts",
      tasks: (name) => `tasks.${name}`,
    }),
    schemas: {},
    maxDepth: 32,
    known: async () => [],
    ...others,
  };
  const open = (agent: Agent) => openAgentConsumer(context, parts, agent, remote);
  const made = agent("reviewer", { consumes: "Draft", ...options });
  return { clock, context, open, consumer: open(made) };
}

/** An agent that throws this error. */
export const failing = (error: unknown) => ({
  run: () => {
    throw error;
  },
});
