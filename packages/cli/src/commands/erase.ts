import { SCOPES } from "@khala/contracts";
import type { EraseResponseJson } from "@khala/contracts/ops/v1";
import { callServer } from "../client/call_server.ts";
import { tokenSource } from "../client/tokens.ts";
import { COMMAND, serverUrl } from "../environment.ts";
import { columns, print } from "../terminal/terminal.ts";

export interface EraseOptions {
  readonly url?: string;
  readonly token?: string;
  readonly subject: string;
  readonly org?: string;
  /** Erase; otherwise only count. */
  readonly yes?: boolean;
  readonly json?: boolean;
}

/** `khala erase`: erases a subject's data, or counts it. */
export async function erase(options: EraseOptions): Promise<void> {
  const url = serverUrl(options.url);
  const tokens = tokenSource(url, options.token, [SCOPES.ops]);
  const counts = new Map<string, number>();
  const reproject = new Set<string>();
  let busy = 0;
  let next: string | undefined;
  do {
    const body = {
      subject: options.subject,
      ...(options.org !== undefined && { org_id: options.org }),
      dry_run: options.yes !== true,
      ...(next !== undefined && { next }),
    };
    // Asked for each step: together they may take longer than a token lives.
    const token = await tokens.get();
    const step = await callServer<EraseResponseJson>(url, "/ops/v1/erase", { body, token });
    for (const { what = "", count = 0 } of step.erased ?? [])
      counts.set(what, (counts.get(what) ?? 0) + count);
    for (const topic of step.reproject ?? []) reproject.add(topic);
    busy += step.busy ?? 0;
    next = step.next;
  } while (next !== undefined);
  const found = { erased: Object.fromEntries(counts), reproject: [...reproject], busy };
  if (options.json) return print(JSON.stringify({ dry_run: options.yes !== true, ...found }));
  const rows = [...counts].map(([what, count]) => [what.replaceAll("_", " "), String(count)]);
  print(columns([["WHAT", options.yes ? "ERASED" : "FOUND"], ...rows]));
  if (busy > 0)
    print(
      `${busy} conversations of other subjects have an active run. Run the command again when those runs have ended.`,
    );
  for (const topic of reproject)
    print(`${topic} has documents of several people. Rebuild it: ${COMMAND} reproject ${topic}`);
  if (!options.yes) print("Nothing was changed. Add --yes to erase it.");
}
