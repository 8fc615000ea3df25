import { SCOPES } from "@khala/contracts";
import type { ApprovalInboxJson, PendingApprovalJson } from "@khala/contracts/conversation/v1";
import { callServer } from "../client/call_server.ts";
import { type ServerOptions, tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { columns, print, truncate } from "../terminal/terminal.ts";

const LIST_SCOPES = [SCOPES.chat, SCOPES.blackboardRead];

/** `khala approvals`: what waits for a person, in conversations and on the board. */
export async function approvals(options: ServerOptions): Promise<void> {
  const found = await list(options);
  if (options.json) return found.forEach((approval) => void print(JSON.stringify(approval)));
  if (found.length === 0) return print("No pending approvals.");
  const rows = found.map((approval) => [
    approval.id ?? "",
    approval.created_at ?? "",
    approval.kind ?? "",
    approval.tool ?? approval.task?.agent ?? "",
    JSON.stringify(approval.input ?? approval.task?.artifacts?.map(({ payload }) => payload) ?? null),
  ]);
  const table = columns([["ID", "SINCE", "KIND", "TOOL OR AGENT", "WITH"], ...rows]);
  for (const line of table.split("\n")) print(truncate(line));
}

/** `khala approvals approve` and `deny`: decides one, of a conversation or of the board. */
export async function decide(
  approved: boolean,
  id: string,
  options: ServerOptions & { readonly reason?: string },
): Promise<void> {
  const { reason } = options;
  // A conversation's id has no slash.
  const [, convId, callId] = /^([^/]+)\/(.+)$/.exec(id) ?? [];
  const url = serverUrl(options.url);
  const scopes = [convId ? SCOPES.chat : SCOPES.blackboardWrite];
  const token = await tokenSource(url, options.token, scopes).get();
  const why = reason !== undefined && { reason };
  await callServer(
    url,
    convId
      ? `/chat/${encodeURIComponent(convId)}/tools/${encodeURIComponent(callId!)}`
      : `/blackboard/v1/approvals/${encodeURIComponent(id)}`,
    { token, method: "POST", body: convId ? { approve: approved, ...why } : { approved, ...why } },
  );
  print(options.json ? JSON.stringify({ id, approved }) : `${id} is ${approved ? "approved" : "denied"}.`);
}

async function list(options: ServerOptions): Promise<readonly PendingApprovalJson[]> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, LIST_SCOPES).get();
  return (await callServer<ApprovalInboxJson>(url, "/approvals", { token })).approvals ?? [];
}
