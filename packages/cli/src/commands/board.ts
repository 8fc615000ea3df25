import { SCOPES } from "@khala/contracts";
import type { AgentListJson } from "@khala/contracts/blackboard/v1";
import { callServer } from "../client/call_server.ts";
import { tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { columns, print } from "../terminal/terminal.ts";

export interface BoardOptions {
  readonly url?: string;
  readonly token?: string;
  readonly json?: boolean;
}

/** `khala agents`: the agents of a running server, and their state. */
export async function agents(options: BoardOptions): Promise<void> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.blackboardRead]).get();
  const { agents: found = [] } = await callServer<AgentListJson>(url, "/blackboard/v1/agents", { token });
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

const CONTROLS = {
  pause: { state: "paused", text: "takes no new tasks; running ones continue" },
  resume: { state: "running", text: "takes tasks again" },
  cancel: {
    state: "cancelled",
    text: "is cancelled: running tasks stop, queued ones become dead letters, new ones run",
  },
} as const;

/** `khala agents pause`, `khala agents resume` and `khala agents cancel`. */
export async function control(
  what: keyof typeof CONTROLS,
  agent: string,
  options: BoardOptions,
): Promise<void> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.platform]).get();
  await callServer<null>(url, `/blackboard/v1/agents/${encodeURIComponent(agent)}/${what}`, {
    body: {},
    token,
  });
  const { state, text } = CONTROLS[what];
  print(options.json ? JSON.stringify({ agent, state }) : `${agent} ${text}.`);
}
