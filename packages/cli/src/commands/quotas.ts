import { SCOPES } from "@khala/contracts";
import type { QuotaListJson } from "@khala/contracts/ops/v1";
import { callServer } from "../client/call_server.ts";
import { tokenSource } from "../client/tokens.ts";
import { serverUrl } from "../environment.ts";
import { columns, print } from "../terminal/terminal.ts";

export interface QuotasOptions {
  readonly url?: string;
  readonly token?: string;
  readonly org?: string;
  readonly json?: boolean;
}

/** `khala quotas`: what an org uses of its quotas. */
export async function quotas(options: QuotasOptions): Promise<void> {
  const url = serverUrl(options.url);
  const token = await tokenSource(url, options.token, [SCOPES.ops]).get();
  const query = options.org === undefined ? "" : `?${new URLSearchParams({ org: options.org })}`;
  const { quotas: uses = [] } = await callServer<QuotaListJson>(url, `/ops/v1/quotas${query}`, { token });
  if (options.json) return print(JSON.stringify(uses, null, 2));
  if (uses.length === 0) return print("No org uses anything with a quota.");
  const rows = uses.map(({ org_id = "", name = "", in_use, limit = 0, rejected = 0, about = "" }) => [
    org_id,
    name,
    in_use === undefined ? "?" : String(in_use),
    limit === 0 ? "none" : String(limit),
    String(rejected),
    about,
  ]);
  print(columns([["ORG", "QUOTA", "IN USE", "LIMIT", "REFUSED", "OF"], ...rows]));
}
