import { SCOPES } from "@khala/contracts";
import type { AuditEntryJson, AuditListJson } from "@khala/contracts/ops/v1";
import { callServer } from "../client/call_server.ts";
import { tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { columns, print } from "../terminal/terminal.ts";

export interface AuditOptions {
  readonly url?: string;
  readonly token?: string;
  readonly action?: string;
  readonly subject?: string;
  readonly limit?: number;
  /** One JSON object per line, oldest first, for a log collector. */
  readonly json?: boolean;
}

const PAGE = 1_000;

/** `khala audit`: who did what to which resource. */
export async function audit(options: AuditOptions): Promise<void> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.ops]).get();
  const wanted = options.limit ?? 100;
  const entries: AuditEntryJson[] = [];
  for (let after: string | undefined; entries.length < wanted; ) {
    const query = new URLSearchParams({ limit: String(Math.min(PAGE, wanted - entries.length)) });
    if (options.action) query.set("action", options.action);
    if (options.subject) query.set("subject", options.subject);
    if (after) query.set("after", after);
    const page = await callServer<AuditListJson>(url, `/ops/v1/audit?${query}`, { token });
    entries.push(...(page.entries ?? []));
    after = page.next;
    if (!after) break;
  }
  entries.reverse();
  if (options.json) {
    for (const entry of entries) print(JSON.stringify(entry));
    return;
  }
  if (entries.length === 0) return print("The audit log has no matching entries.");
  const rows = entries.map(
    ({ at = "", subject = "", action = "", resource = "", address = "", outcome = "" }) => [
      at,
      subject,
      action,
      outcome,
      address,
      resource,
    ],
  );
  print(columns([["AT", "SUBJECT", "ACTION", "OUTCOME", "FROM", "RESOURCE"], ...rows]));
}
