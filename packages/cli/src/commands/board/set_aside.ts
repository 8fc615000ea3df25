import { SCOPES } from "@khala/contracts";
import type { SetAsideItemJson, SetAsideListJson } from "@khala/contracts/ops/v1";
import { type Call, callServer } from "../../client/call_server.ts";
import { type ServerOptions, tokenSource } from "../../client/tokens.ts";
import { serverUrl } from "../../environment.ts";
import { columns, print, truncate } from "../../terminal/terminal.ts";

export interface SetAsideOptions extends ServerOptions {
  readonly limit?: number;
}

const PAGE = 1_000;

/** `khala set-aside list`: artifacts the board refused for good, oldest first. */
export async function listSetAside(options: SetAsideOptions): Promise<void> {
  const call = await connect(options);
  const wanted = options.limit ?? 100;
  const items: SetAsideItemJson[] = [];
  for (let after: string | undefined; items.length < wanted; ) {
    const query = new URLSearchParams({ limit: String(Math.min(PAGE, wanted - items.length)) });
    if (after) query.set("after", after);
    const page = await call<SetAsideListJson>(`?${query}`);
    items.push(...(page.items ?? []));
    after = page.next;
    if (!after) break;
  }
  if (options.json) return items.forEach((item) => void print(JSON.stringify(item)));
  if (items.length === 0) return print("Nothing is set aside.");
  const rows = items.map(
    ({ id = "", failed_at = "", org_id = "", loop = "", kind = "", item = "", error = "" }) => [
      id,
      failed_at,
      org_id,
      loop,
      kind,
      item,
      error.replaceAll(/\s+/g, " "),
    ],
  );
  const table = columns([["ID", "FAILED AT", "ORG", "LOOP", "KIND", "ITEM", "ERROR"], ...rows]);
  for (const line of table.split("\n")) print(truncate(line));
}

/** `khala set-aside retry`: processes an item again. */
export async function retrySetAside(id: string, options: SetAsideOptions): Promise<void> {
  const call = await connect(options);
  await call(`/${encodeURIComponent(id)}/retry`, "POST");
  print(options.json ? JSON.stringify({ id, retried: true }) : `${id} is retried.`);
}

/** `khala set-aside discard`: deletes an item. */
export async function discardSetAside(id: string, options: SetAsideOptions): Promise<void> {
  const call = await connect(options);
  await call(`/${encodeURIComponent(id)}`, "DELETE");
  print(options.json ? JSON.stringify({ id, discarded: true }) : `${id} is discarded.`);
}

async function connect(options: SetAsideOptions) {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.ops]).get();
  return <T>(path: string, method: Call["method"] = "GET") =>
    callServer<T>(url, `/ops/v1/set-aside${path}`, { token, method });
}
