import { SCOPES } from "@khala/contracts";
import type { AgentListJson, LagResponseJson } from "@khala/contracts/blackboard/v1";
import { callWithScope, type ServerOptions } from "../../client/tokens.ts";
import { columns, print } from "../../terminal/terminal.ts";

/** `khala agents`: the agents of a running server, and their state. */
export async function agents(options: ServerOptions): Promise<void> {
  const found = await listAgents(options);
  if (options.json) return print(JSON.stringify({ agents: found }));
  if (found.length === 0) return print("The app of this server has no agents.");
  const rows = found.map(
    ({ name = "", state = "", waiting, running, done, retried, dead, consumes = [] }) => [
      name,
      state,
      ...[waiting, running, done, retried, dead].map((count) => String(count ?? 0)),
      consumes.join(" "),
    ],
  );
  print(columns([["AGENT", "STATE", "WAITING", "RUNNING", "DONE", "RETRIED", "DEAD", "CONSUMES"], ...rows]));
}

/** The agents of a running server. */
export async function listAgents(options: ServerOptions): Promise<NonNullable<AgentListJson["agents"]>> {
  const path = "/blackboard/v1/agents";
  const { agents = [] } = await callWithScope<AgentListJson>(options, SCOPES.blackboardRead, path);
  return agents;
}

/** `khala lag`: how far behind readers are, by partition. */
export async function lag(options: ServerOptions): Promise<void> {
  const path = "/blackboard/v1/lag";
  const { partitions = [] } = await callWithScope<LagResponseJson>(options, SCOPES.blackboardRead, path);
  if (options.json) return partitions.forEach((partition) => void print(JSON.stringify(partition)));
  const rows = partitions.map(({ reader = "", topic = "", partition, lag, lag_high }) => [
    reader,
    topic,
    ...[partition, lag, lag_high].map((count) => String(count ?? 0)),
  ]);
  print(columns([["READER", "TOPIC", "PARTITION", "LAG", "LAG HIGH"], ...rows]));
}

const CONTROLS = {
  pause: { state: "paused", text: "starts no new tasks; running ones continue" },
  resume: { state: "running", text: "is resumed" },
  cancel: {
    state: "cancelled",
    text: "is cancelled: running tasks stop, queued ones become dead letters, new ones run",
  },
} as const;

/** `khala agents pause`, `khala agents resume` and `khala agents cancel`. */
export async function control(
  what: keyof typeof CONTROLS,
  agent: string,
  options: ServerOptions,
): Promise<void> {
  const path = `/blackboard/v1/agents/${encodeURIComponent(agent)}/${what}`;
  await callWithScope<null>(options, SCOPES.platform, path, {});
  const { state, text } = CONTROLS[what];
  print(options.json ? JSON.stringify({ agent, state }) : `${agent} ${text}.`);
}
